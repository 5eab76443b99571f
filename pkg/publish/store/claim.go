package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// claimTime is how long a publisher waits after its claim before it looks who else has claimed: a
// server may give ids before it shows them, so that one with a lower id may be seen a moment later.
const claimTime = 2 * time.Second

// replaceTime is how long replacing a version may go on after an interrupt: nothing is public
// between the removal of the old version and the last file of the new one.
const replaceTime = 10 * time.Minute

// Flat is a server without drafts: each file is there for everybody once it has come.
type Flat interface {
	// List returns the files of a version in the order in which they came. Of several of one name the
	// last is downloaded.
	List(ctx context.Context, version string) ([]FlatFile, error)
	// Send puts a file there. The error is ErrExists where one of that name is there.
	Send(ctx context.Context, version string, f release.File) error
	// Remove removes one file; that it is not there is no error.
	Remove(ctx context.Context, version string, f FlatFile) error
	// RemoveVersion removes a version with all of its files.
	RemoveVersion(ctx context.Context, version string) error
	// Download returns the bytes of a file.
	Download(ctx context.Context, version, name string) ([]byte, error)
}

// FlatFile is a file of a version; one without a digest is half an upload.
type FlatFile struct {
	Name string
	File
	// Own is the server's, such as an id.
	Own any
}

// ErrExists says that a file of that name is there.
var ErrExists = errors.New("a file of that name is there")

// Claims publishes versions to a server without drafts. What clusterctl asks of a version always needs
// its metadata.yaml, so that this comes last and makes the version. First comes SHA256SUMS, which names
// every byte of the version: it is the claim of a publisher. Where the server refuses duplicates only
// one claim can be there; where it takes them the first holds. A publisher whose bytes are not those
// of the claim that holds leaves the version alone; those with the same bytes, such as the re-run of
// one that was killed, go on with it together.
type Claims struct {
	Server Flat
	Client *transport.Client
	Tell   func(string)
}

// claimed is what Claims stages.
type claimed struct {
	wanted *Wanted
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
func (c *Claims) Stage(ctx context.Context, w *Wanted, there *Snapshot) (Staged, error) {
	s := &claimed{wanted: w}
	if there.Public && there.Claim != Digest(w.All[0].Data) {
		for name := range there.Files {
			data, err := c.Server.Download(ctx, w.Number, name)
			if err != nil {
				return nil, fmt.Errorf("reading the %s that is replaced, to put it back if the new one is refused: %w", w.Number, err)
			}
			s.old = append(s.old, release.File{Name: name, Data: data})
		}
		return s, nil
	}
	return s, c.Fill(ctx, w)
}

// Commit puts the metadata there, which makes the version.
func (c *Claims) Commit(ctx context.Context, staged Staged) error {
	s, ok := staged.(*claimed)
	if !ok {
		return fmt.Errorf("staged is a %T", staged)
	}
	if len(s.old) == 0 {
		return c.Complete(ctx, s.wanted)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replaceTime)
	defer cancel()
	c.say("removing the " + s.wanted.Number + " that is replaced")
	err := c.Server.RemoveVersion(ctx, s.wanted.Number)
	if err == nil {
		err = c.Fill(ctx, s.wanted)
	}
	if err == nil {
		err = c.Complete(ctx, s.wanted)
	}
	if err == nil || errors.Is(err, ErrTaken) {
		return err
	}
	return c.putBack(ctx, s, err)
}

// putBack makes the version that was to be replaced public again.
func (c *Claims) putBack(ctx context.Context, s *claimed, why error) error {
	c.say("putting the " + s.wanted.Number + " back that was there")
	err := c.Server.RemoveVersion(ctx, s.wanted.Number)
	for _, f := range inOrder(s.old) {
		if err == nil {
			err = c.put(ctx, s.wanted.Number, f)
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
	wanted := map[string]string{ChecksumsFile: Digest(v.Checksums().Data)}
	for _, f := range v.Files {
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
func (c *Claims) Fill(ctx context.Context, w *Wanted) error {
	found, err := c.Server.List(ctx, w.Number)
	if err != nil {
		return err
	}
	if snapshotOf(w.Number, found).Claim == "" {
		if i := lastOf(found, ChecksumsFile); i >= 0 { // half of one
			if err := c.Server.Remove(ctx, w.Number, found[i]); err != nil {
				return err
			}
		}
		if err := c.Server.Send(ctx, w.Number, w.All[0]); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
		if err := c.Client.Network().Wait(ctx, claimTime); err != nil {
			return err
		}
	}
	if err := c.holds(ctx, w); err != nil {
		return err
	}
	for i, f := range w.All[1:] {
		if f.Name == release.MetadataFile {
			continue
		}
		if err := c.put(ctx, w.Number, f); err != nil {
			return err
		}
		c.say(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, i+2, len(w.All)))
	}
	return nil
}

// Complete puts the metadata there. It makes the version, so nobody else must have claimed it meanwhile.
func (c *Claims) Complete(ctx context.Context, w *Wanted) error {
	if err := c.holds(ctx, w); err != nil {
		return err
	}
	metadata, _ := w.File(release.MetadataFile) // each release has one
	return c.put(ctx, w.Number, metadata)
}

// holds returns ErrTaken where the version is claimed for other bytes, and removes the claim of this
// publisher then.
func (c *Claims) holds(ctx context.Context, w *Wanted) error {
	found, err := c.Server.List(ctx, w.Number)
	if err != nil {
		return err
	}
	own := Digest(w.All[0].Data)
	switch snapshotOf(w.Number, found).Claim {
	case own:
		return nil
	case "":
		return fmt.Errorf("publishing %s: the claim %s is not there any more: somebody removes files of the package; run this again", w.Number, ChecksumsFile)
	}
	for _, f := range found {
		if f.Name == ChecksumsFile && f.SHA256 == own {
			_ = c.Server.Remove(ctx, w.Number, f) // the holder removes it as well
		}
	}
	return ErrTaken
}

// put makes sure that a file is there with its bytes. Under a claim that holds nobody puts other
// bytes there, so that what is there and differs is an upload that went wrong.
func (c *Claims) put(ctx context.Context, version string, f release.File) error {
	var last error
	for try := 0; ; try++ {
		if try > 0 {
			if err := c.Client.Again(ctx, try, last); err != nil {
				return err
			}
		}
		found, err := c.Server.List(ctx, version)
		if err != nil {
			return err
		}
		i := lastOf(found, f.Name)
		if i >= 0 && (found[i].SHA256 == Digest(f.Data) || Generated(f.Name) && found[i].SHA256 != "") {
			return nil // one provenance does; two publishers need not say the same
		}
		if i >= 0 {
			last = fmt.Errorf("uploading %s: the server has other bytes for it", f.Name)
			if err := c.Server.Remove(ctx, version, found[i]); err != nil {
				return fmt.Errorf("%w, and they can't be removed: %w", last, err)
			}
		}
		err = c.Server.Send(ctx, version, f)
		switch {
		case err == nil && last == nil:
			last = fmt.Errorf("uploading %s: the server does not list it", f.Name)
		case err != nil:
			if ctx.Err() != nil || transport.IsRefusal(err) && !errors.Is(err, ErrExists) {
				return err
			}
			last = err
		}
	}
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

func (c *Claims) say(line string) {
	if c.Tell != nil {
		c.Tell(line)
	}
}
