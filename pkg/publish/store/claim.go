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

// claimTime is the time that a publisher waits after its claim before it looks for other claims: a server may assign
// IDs before it shows them, so a lower ID may appear a moment later.
const claimTime = 2 * time.Second

// replaceTime is the time limit for replacing a version after an interrupt: no version is public between the removal of
// the old one and the last file of the new one.
const replaceTime = 10 * time.Minute

// Flat is a server, or a part of one, that shows each file of a version immediately.
type Flat interface {
	// List returns the files of a version in the order of their uploads. Of several with one name, the last is
	// downloaded.
	List(ctx context.Context, version string) ([]FlatFile, error)
	// Send uploads a file. The error is ErrExists if a file with that name exists, or may exist.
	Send(ctx context.Context, version string, f release.File) error
	// Remove removes one file; a missing one is no error.
	Remove(ctx context.Context, version string, f FlatFile) error
}

// FlatFile is a file of a version; one without a digest is an incomplete upload.
type FlatFile struct {
	Name string
	File
	// ID is the server's number of the file, and Package that of its container, if the server has such.
	ID, Package int64
}

// ErrExists means that a file with that name exists.
var ErrExists = errors.New("a file of that name is there")

// Filler puts the files of a version onto a server.
type Filler struct {
	To     Flat
	Client *transport.Client
	Tell   func(string)
	// AtOnce is the number of concurrent uploads; 0 means one.
	AtOnce int
	// Alone means that no other publisher uploads files there.
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

// Claims publishes versions to a server without drafts. clusterctl always needs the metadata.yaml of a version, so this
// file is uploaded last and completes the version. SHA256SUMS is uploaded first. It names every byte of the version: it
// is the claim of a publisher. If the server refuses duplicates, only one claim can exist; if it accepts them, the
// first is valid. A publisher with other bytes than the valid claim leaves the version alone; publishers with the same
// bytes, such as the second run of a killed one, continue it together.
type Claims struct {
	Filler
	Plain
	Server Packages
}

// NewClaims returns Claims for a server.
func NewClaims(server Packages, client *transport.Client, tell func(string)) *Claims {
	return &Claims{Filler: Filler{To: server, Client: client, Tell: tell}, Server: server}
}

// claimed is what Claims stages.
type claimed struct {
	version *Version
	// old are the files of the replaced version, for restoring them; empty without one.
	old []release.File
}

// Look returns the snapshot of a version.
func (c *Claims) Look(ctx context.Context, version string) (*Snapshot, error) {
	files, err := c.Server.List(ctx, version)
	if err != nil {
		return nil, err
	}
	return snapshotOf(version, files), nil
}

// snapshotOf returns the snapshot of files, for readers and publishers.
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

// Stage claims a version and uploads all files except the metadata. Of a replaced version it only reads the files,
// because uploading a file would change it.
func (c *Claims) Stage(ctx context.Context, v *Version, there *Snapshot) (Staged, error) {
	s := &claimed{version: v}
	if there.Public && there.Claim != release.Digest(v.All[0].Data) {
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

// Commit uploads the metadata, which completes the version.
func (c *Claims) Commit(ctx context.Context, staged Staged) error {
	s := staged.(*claimed) // Stage returned it
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

// putBack makes the version public again that was to be replaced.
func (c *Claims) putBack(ctx context.Context, s *claimed, why error) error {
	c.Tell("restoring the previous " + s.version.Number)
	err := c.Server.RemoveVersion(ctx, s.version.Number)
	for _, f := range inOrder(s.old) {
		if err == nil {
			err = c.Put(ctx, s.version.Number, []release.File{f})
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the previous version could not be restored either (%w): run this again", why, err)
	}
	return fmt.Errorf("%w; the previous version is public again", why)
}

// Settle removes duplicate files, which have the same bytes because an answer was lost or two publishers continued
// together, and invalid claims. The first of each name stays.
func (c *Claims) Settle(ctx context.Context, v *Version, _ Staged) ([]string, error) {
	found, err := c.Server.List(ctx, v.Number)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for _, f := range v.All {
		wanted[f.Name] = release.Digest(f.Data)
	}
	if snapshotOf(v.Number, found).Claim != wanted[ChecksumsFile] {
		return nil, nil // another program uploaded it
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
			return nil, nil // a duplicate is harmless, and this user may not remove it
		} else if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Fill claims a version and uploads all files except the metadata.
func (c *Filler) Fill(ctx context.Context, v *Version) error {
	found, err := c.To.List(ctx, v.Number)
	if err != nil {
		return err
	}
	if snapshotOf(v.Number, found).Claim == "" {
		if i := lastOf(found, ChecksumsFile); i >= 0 { // an incomplete one
			if err := c.To.Remove(ctx, v.Number, found[i]); err != nil {
				return err
			}
		}
		if err := c.To.Send(ctx, v.Number, v.All[0]); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
		if err := c.Client.Network.Wait(ctx, claimTime); err != nil {
			return err
		}
	}
	if err := c.holds(ctx, v); err != nil {
		return err
	}
	return c.Put(ctx, v.Number, slices.DeleteFunc(slices.Clone(v.All[1:]), func(f release.File) bool { return f.Name == release.MetadataFile }))
}

// Complete uploads the metadata. It completes the version, so no other publisher may have claimed it by then.
func (c *Filler) Complete(ctx context.Context, v *Version) error {
	if err := c.holds(ctx, v); err != nil {
		return err
	}
	metadata, _ := v.File(release.MetadataFile) // each release has it
	return c.Put(ctx, v.Number, []release.File{metadata})
}

// holds returns ErrTaken if the version is claimed for other bytes, and then removes the claim of this publisher.
func (c *Filler) holds(ctx context.Context, v *Version) error {
	found, err := c.To.List(ctx, v.Number)
	if err != nil {
		return err
	}
	own := release.Digest(v.All[0].Data)
	switch snapshotOf(v.Number, found).Claim {
	case own:
		return nil
	case "":
		return fmt.Errorf("publishing %s: the claim %s no longer exists: something else removes files of the package; run this again", v.Number, ChecksumsFile)
	}
	for _, f := range found {
		if f.Name == ChecksumsFile && f.SHA256 == own {
			_ = c.To.Remove(ctx, v.Number, f) // the holder removes it as well
		}
	}
	return ErrTaken
}

// Put uploads files, and returns when the server lists each of them with its bytes, whatever the answers to the uploads
// were.
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

// send uploads files. It returns the last error that another attempt may solve, and the first of the others.
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

// lacking returns the files that are missing or have other bytes. It removes the latter: under a valid claim no other
// publisher uploads other bytes, so the upload failed.
func (c *Filler) lacking(ctx context.Context, version string, files []release.File) ([]release.File, error) {
	found, err := c.To.List(ctx, version)
	if err != nil {
		return nil, err
	}
	var missing []release.File
	for _, f := range files {
		i := lastOf(found, f.Name)
		// Two publishers may record different sources of the same files.
		if i >= 0 && (found[i].SHA256 == release.Digest(f.Data) || !c.Alone && Generated(f.Name) && found[i].SHA256 != "") {
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
