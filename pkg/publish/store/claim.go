package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// claimTime is how long a publisher waits after its claim before it looks who else has claimed: a
// server may give ids before it shows them, so that one with a lower id may be seen a moment later.
const claimTime = 2 * time.Second

// replaceTime is how long replacing a version may go on after an interrupt: nothing is public
// between the removal of the old version and the last file of the new one.
const replaceTime = 10 * time.Minute

// Flat is a server, or a part of one, that shows each file of a version as soon as it has come.
type Flat interface {
	// List returns the files of a version in the order in which they came. Of several of one name the
	// last is downloaded.
	List(ctx context.Context, version string) ([]FlatFile, error)
	// Send puts a file there. The error is ErrExists where one of that name is, or may be, there.
	Send(ctx context.Context, version string, f release.File) error
	// Remove removes one file; that it is not there is no error.
	Remove(ctx context.Context, version string, f FlatFile) error
}

// FlatFile is a file of a version; one without a digest is half an upload.
type FlatFile struct {
	Name string
	File
	// ID is the server's number of the file, and Package that of what it is in, where it has such.
	ID, Package int64
}

// ErrExists says that a file of that name is there.
var ErrExists = errors.New("a file of that name is there")

// Filler puts the files of a version onto a server.
type Filler struct {
	To     Flat
	Client *transport.Client
	Tell   func(string)
	// AtOnce is how many files are sent at the same time; 0 is one.
	AtOnce int
	// Alone says that nobody else puts files there.
	Alone bool
}

// Packages is a Flat with a package for each version.
type Packages interface {
	Flat
	// RemoveVersion removes a version with all of its files.
	RemoveVersion(ctx context.Context, version string) error
	// Read returns the bytes of a file of a snapshot.
	Read(ctx context.Context, there *Snapshot, name string) ([]byte, error)
}

// Claims publishes versions to a server without drafts. What clusterctl asks of a version always needs
// its metadata.yaml, so that this comes last and makes the version. First comes SHA256SUMS, which names
// every byte of the version: it is the claim of a publisher. Where the server refuses duplicates only
// one claim can be there; where it takes them the first holds. A publisher whose bytes are not those
// of the claim that holds leaves the version alone; those with the same bytes, such as the re-run of
// one that was killed, go on with it together.
type Claims struct {
	Filler
	Plain
	Server Packages
}

// NewClaims returns what publishes to a server, one file at a time.
func NewClaims(server Packages, client *transport.Client, tell func(string)) *Claims {
	return &Claims{Filler: Filler{To: server, Client: client, Tell: tell}, Server: server}
}

// claimed is what Claims stages.
type claimed struct {
	version *Version
	// old are the files of the version that is replaced, to put them back; none where nothing is.
	old []release.File
}

// Look returns what is there for a version.
func (c *Claims) Look(ctx context.Context, version string) (*Snapshot, error) {
	files, err := c.Server.List(ctx, version)
	if err != nil {
		return nil, err
	}
	return snapshotOf(version, files), nil
}

// snapshotOf returns what files are to those who read and to those who publish.
func snapshotOf(version string, files []FlatFile) *Snapshot {
	s := &Snapshot{Version: version, Files: map[string]File{}, Public: len(files) > 0}
	for _, f := range files {
		if f.Name == ChecksumsFile && s.Claim == "" {
			s.Claim = f.SHA256
		}
		s.Files[f.Name] = f.File
	}
	_, s.Complete = s.Files[release.MetadataFile]
	if s.Claim != "" && !s.Complete {
		s.Hint = fmt.Sprintf("it is not complete: another publisher is at work, or was ended; if so, publish those bytes again, or remove the package of %s", version)
	}
	return s
}

// Stage claims a version and puts there all files but the metadata. Of a version that is replaced only
// the files are read: to put one of its files there would change it.
func (c *Claims) Stage(ctx context.Context, v *Version, there *Snapshot) (Staged, error) {
	s := &claimed{version: v}
	if there.Public && there.Claim != Digest(v.All[0].Data) {
		for name := range there.Files {
			data, err := c.Server.Read(ctx, there, name)
			if err != nil {
				return nil, fmt.Errorf("reading the %s that is replaced, to put it back if the new one is refused: %w", v.Number, err)
			}
			s.old = append(s.old, release.File{Name: name, Data: data})
		}
		return s, nil
	}
	return s, c.Fill(ctx, v)
}

// Commit puts the metadata there, which makes the version.
func (c *Claims) Commit(ctx context.Context, staged Staged) error {
	s := staged.(*claimed) // Stage made it
	if len(s.old) == 0 {
		return c.Complete(ctx, s.version)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replaceTime)
	defer cancel()
	c.Tell("removing the " + s.version.Number + " that is replaced")
	err := c.Server.RemoveVersion(ctx, s.version.Number)
	if err == nil {
		err = c.Fill(ctx, s.version)
	}
	if err == nil {
		err = c.Complete(ctx, s.version)
	}
	if err == nil || errors.Is(err, ErrTaken) {
		return err
	}
	return c.putBack(ctx, s, err)
}

// putBack makes the version that was to be replaced public again.
func (c *Claims) putBack(ctx context.Context, s *claimed, why error) error {
	c.Tell("putting the " + s.version.Number + " back that was there")
	err := c.Server.RemoveVersion(ctx, s.version.Number)
	for _, f := range inOrder(s.old) {
		if err == nil {
			err = c.Put(ctx, s.version.Number, []release.File{f})
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the version that was there could not be put back either (%w): run this again", why, err)
	}
	return fmt.Errorf("%w; the version that was there is public again", why)
}

// Settle removes files that are there twice: with the same bytes, as an answer was lost or two
// publishers went on together, and claims that did not hold. The first of each name stays.
func (c *Claims) Settle(ctx context.Context, v *Version, _ Staged) ([]string, error) {
	found, err := c.Server.List(ctx, v.Number)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, f := range v.All {
		wanted[f.Name] = Digest(f.Data)
	}
	if snapshotOf(v.Number, found).Claim != wanted[ChecksumsFile] {
		return nil, nil // it was put there by something else
	}
	kept := map[string]bool{}
	for _, f := range found {
		sum, own := wanted[f.Name]
		if f.Name == ProvenanceFile {
			sum, own = f.SHA256, true // one does, whatever it says
		}
		if !own {
			continue
		}
		if f.SHA256 == sum && !kept[f.Name] {
			kept[f.Name] = true
			continue
		}
		if err := c.Server.Remove(ctx, v.Number, f); transport.HasStatus(err, 401, 403) {
			return nil, nil // the same file twice hurts nobody, and this user may not remove it
		} else if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Fill claims a version and puts there all files but the metadata.
func (c *Filler) Fill(ctx context.Context, v *Version) error {
	found, err := c.To.List(ctx, v.Number)
	if err != nil {
		return err
	}
	if snapshotOf(v.Number, found).Claim == "" {
		if i := lastOf(found, ChecksumsFile); i >= 0 { // half of one
			if err := c.To.Remove(ctx, v.Number, found[i]); err != nil {
				return err
			}
		}
		if err := c.To.Send(ctx, v.Number, v.All[0]); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
		if err := c.Client.Network().Wait(ctx, claimTime); err != nil {
			return err
		}
	}
	if err := c.holds(ctx, v); err != nil {
		return err
	}
	return c.Put(ctx, v.Number, slices.DeleteFunc(slices.Clone(v.All[1:]), func(f release.File) bool { return f.Name == release.MetadataFile }))
}

// Complete puts the metadata there. It makes the version, so nobody else must have claimed it meanwhile.
func (c *Filler) Complete(ctx context.Context, v *Version) error {
	if err := c.holds(ctx, v); err != nil {
		return err
	}
	metadata, _ := v.File(release.MetadataFile) // each release has one
	return c.Put(ctx, v.Number, []release.File{metadata})
}

// holds returns ErrTaken where the version is claimed for other bytes, and removes the claim of this
// publisher then.
func (c *Filler) holds(ctx context.Context, v *Version) error {
	found, err := c.To.List(ctx, v.Number)
	if err != nil {
		return err
	}
	own := Digest(v.All[0].Data)
	switch snapshotOf(v.Number, found).Claim {
	case own:
		return nil
	case "":
		return fmt.Errorf("publishing %s: the claim %s is not there any more: somebody removes files of the package; run this again", v.Number, ChecksumsFile)
	}
	for _, f := range found {
		if f.Name == ChecksumsFile && f.SHA256 == own {
			_ = c.To.Remove(ctx, v.Number, f) // the holder removes it as well
		}
	}
	return ErrTaken
}

// Put puts files there, and returns when the server lists each of them with its bytes: what an upload was
// answered does not count.
func (c *Filler) Put(ctx context.Context, version string, files []release.File) error {
	missing, err := c.lacking(ctx, version, files)
	for try := 1; err == nil && len(missing) > 0; try++ {
		last, fatal := c.send(ctx, version, missing)
		if fatal != nil {
			return fatal
		}
		if missing, err = c.lacking(ctx, version, files); err != nil || len(missing) == 0 {
			return err
		}
		if last == nil {
			last = fmt.Errorf("%s is not as it was uploaded: see what the server's status page says", missing[0].Name)
		}
		if err := c.Client.Again(ctx, try, last); err != nil {
			return err
		}
		missing, err = c.lacking(ctx, version, files) // the list may have been behind
	}
	return err
}

// send sends files. It returns the last error of those that another try may help with, and the first of the
// others.
func (c *Filler) send(ctx context.Context, version string, files []release.File) (last, fatal error) {
	var mu sync.Mutex
	sent := 0
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(c.AtOnce, 1))
	for _, f := range files {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := c.To.Send(ctx, version, f)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sent++
				c.Tell(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, sent, len(files)))
				return nil
			}
			last = err
			if ctx.Err() == nil && (!transport.IsRefusal(err) || errors.Is(err, ErrExists)) {
				err = nil // another try may help
			}
			return err
		})
	}
	fatal = group.Wait()
	return last, fatal
}

// lacking returns those of the files that are not there with their bytes. What is there instead is removed:
// under a claim that holds nobody puts other bytes there, so that it is an upload that went wrong.
func (c *Filler) lacking(ctx context.Context, version string, files []release.File) ([]release.File, error) {
	found, err := c.To.List(ctx, version)
	if err != nil {
		return nil, err
	}
	var missing []release.File
	for _, f := range files {
		i := lastOf(found, f.Name)
		// Two publishers need not say the same of where the files come from.
		if i >= 0 && (found[i].SHA256 == Digest(f.Data) || !c.Alone && Generated(f.Name) && found[i].SHA256 != "") {
			continue
		}
		missing = append(missing, f)
		if i < 0 {
			continue
		}
		if err := c.To.Remove(ctx, version, found[i]); err != nil {
			return nil, fmt.Errorf("uploading %s: the server has other bytes for it, and they can't be removed: %w", f.Name, err)
		}
	}
	for _, other := range found {
		if c.Alone && !slices.ContainsFunc(files, func(f release.File) bool { return f.Name == other.Name }) {
			return nil, fmt.Errorf("there is a file %s that is not of this release: something else adds files here; stop that and run this again", other.Name)
		}
	}
	return missing, nil
}

func lastOf(files []FlatFile, name string) int {
	for i, f := range slices.Backward(files) {
		if f.Name == name {
			return i
		}
	}
	return -1
}

// inOrder returns files with the claim first and the metadata last.
func inOrder(files []release.File) []release.File {
	at := func(f release.File) int {
		switch f.Name {
		case ChecksumsFile:
			return 0
		case release.MetadataFile:
			return 2
		}
		return 1
	}
	ordered := slices.Clone(files)
	slices.SortStableFunc(ordered, func(a, b release.File) int { return at(a) - at(b) })
	return ordered
}
