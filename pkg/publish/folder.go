package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The names within a folder's root that this package uses while it works. They start with a dot: neither clusterctl nor
// release.Read treats them as a provider.
const (
	// stagingFolder contains the files that are being written, on the file system of the root, so that they can be
	// renamed.
	stagingFolder = ".clusterctl-release.staging"
	// stagedVersions, in the staging folder, holds <label>/<version>/ before it is renamed.
	stagedVersions = "new"
	// setAside, in the staging folder, contains <label>/<version>/ that is being replaced if the file system can't
	// exchange two folders in one step.
	setAside = "old"
)

// folder is a tree <root>/<label>/<version>/ into which only complete versions are put.
//
// A version is written to the staging folder, synced, and renamed to its place. A version that replaces another is
// exchanged with it in one step. If the file system can't do that, the old one is renamed first: between these two
// renames the version is missing, and if the process is killed just there, it stays missing until the next run, which
// restores it first. All of this happens under the lock of the root, so the files that the holder of the lock finds in
// the staging folder are those of a killed run.
//
// A reader that opens files by their paths, as clusterctl does, always finds all of them. If it reads them one by one
// while a version is replaced, it may get some old and some new files.
type folder struct {
	root string
	opts Options
	// records means that the source of a release is written next to its files.
	records bool
	// overrides is the configuration with which clusterctl reads overrides from here; nil for a repository.
	overrides config.Client
}

func (f *folder) versionFolder(r *release.Release) string {
	return filepath.Join(f.root, r.Provider.Label(), r.Version)
}

func (f *folder) staging(elements ...string) string {
	return filepath.Join(append([]string{f.root, stagingFolder}, elements...)...)
}

// unfinished reports whether a run was killed here, or is in progress.
func (f *folder) unfinished() bool {
	for _, path := range []string{f.staging(), filepath.Join(f.root, lockFile)} {
		if _, err := os.Lstat(path); err == nil {
			return true
		}
	}
	return false
}

// update takes the lock, removes the remains of a killed run, asks decide for the changes while no other publisher can
// make any, makes them, and calls verify. After an error, each version is unchanged or complete, and staged files are
// removed.
func (f *folder) update(ctx context.Context, decide func() (*Plan, error), verify func() error) (plan *Plan, err error) {
	lock, err := f.acquire(ctx)
	if err != nil {
		return nil, withAdvice(err)
	}
	published := false
	defer func() {
		err = withAdvice(joinErrors(err, lock.release(published)))
	}()
	_, missing := os.Lstat(f.staging())
	if err := f.recoverKilled(); err != nil {
		return nil, fmt.Errorf("clearing what a run before this one left: %w", err)
	}
	plan, err = decide()
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, err
	}
	if !plan.Changes() {
		published = true
		if missing == nil {
			// The killed run may have ended before the sync.
			if err := f.syncAll(); err != nil {
				return nil, fmt.Errorf("syncing what a run before this one published: %w", err)
			}
		}
		return plan, verify()
	}
	err = f.stage(ctx, plan)
	if err == nil {
		published, err = f.commit(ctx, plan)
	}
	// This does more than clearStaging: after a failed replacement, it restores the old version.
	if err := joinErrors(err, f.recoverKilled()); err != nil {
		return nil, err
	}
	return plan, verify()
}

// recoverKilled restores versions that a killed or failed run had set aside, and removes its staged files.
func (f *folder) recoverKilled() error {
	labels, err := readFolderIfAny(f.staging(setAside))
	if err != nil {
		return err
	}
	for _, label := range labels {
		versions, err := readFolderIfAny(f.staging(setAside, label))
		if err != nil {
			return err
		}
		for _, version := range versions {
			place := filepath.Join(f.root, label, version)
			if _, err := os.Lstat(place); !errors.Is(err, fs.ErrNotExist) {
				continue // the new one is in its place
			}
			if err := f.opts.disk.rename(f.staging(setAside, label, version), place); err != nil {
				return err
			}
			if err := f.opts.disk.syncFolder(filepath.Dir(place)); err != nil {
				return err
			}
		}
	}
	return f.clearStaging()
}

// readFolderIfAny returns the names in a folder; none if the folder does not exist.
func readFolderIfAny(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

// clearStaging removes the staging folder. It retries once, because the folder must not be left.
func (f *folder) clearStaging() error {
	err := f.opts.disk.removeTree(f.staging())
	if err == nil {
		return nil
	}
	if f.opts.disk.removeTree(f.staging()) == nil {
		return fmt.Errorf("removing what was staged: %w", err)
	}
	return fmt.Errorf("removing what was staged (the next run does it): %w", err)
}

// stage writes all files that will be renamed, so that a full disk is detected here.
func (f *folder) stage(ctx context.Context, plan *Plan) error {
	if err := f.opts.disk.mkdir(f.staging(), 0o700); err != nil {
		return fmt.Errorf("making the staging folder: %w", err)
	}
	if err := f.opts.disk.mkdir(f.staging(stagedVersions), folderMode); err != nil {
		return fmt.Errorf("making the staging folder: %w", err)
	}
	for _, r := range plan.Releases {
		if r.Action == store.Unchanged {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("stopped before anything was published: %w", err)
		}
		f.opts.tell(fmt.Sprintf("writing %s to %s", r.Release, f.root))
		if err := f.stageVersion(r.Release); err != nil {
			return fmt.Errorf("nothing was published: staging %s: %w", r.Release, err)
		}
	}
	if plan.changesConfig() {
		if err := f.opts.disk.writeFile(f.staging(configFile), plan.Config.text, plan.Config.mode); err != nil {
			return fmt.Errorf("nothing was published: staging %s: %w", configFile, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stopped before anything was published: %w", err)
	}
	return nil
}

func (f *folder) stageVersion(r *release.Release) error {
	label := f.staging(stagedVersions, r.Provider.Label())
	version := filepath.Join(label, r.Version)
	if err := f.opts.disk.mkdir(label, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := f.opts.disk.mkdir(version, folderMode); err != nil {
		return err
	}
	files := slices.Clone(r.Files)
	if f.records && r.Source != nil {
		record, err := r.Source.File()
		if err != nil {
			return err
		}
		files = append(files, record)
	}
	for _, file := range files {
		if err := f.opts.disk.writeFile(filepath.Join(version, file.Name), file.Data, fileMode); err != nil {
			return err
		}
	}
	if err := f.opts.disk.syncFolder(version); err != nil {
		return err
	}
	return f.opts.disk.syncFolder(label)
}

// commit renames staged files to their places, and reports whether it published any. The clusterctl.yaml comes last, so
// that it never names a missing provider.
func (f *folder) commit(ctx context.Context, plan *Plan) (published bool, err error) {
	for _, r := range plan.Releases {
		if r.Action == store.Unchanged {
			continue
		}
		if err := ctx.Err(); err != nil {
			return published, fmt.Errorf("stopped before %s was published: %w", r.Release, err)
		}
		if r.Action == store.Create {
			err = f.commitNew(r.Release)
		} else {
			err = f.commitReplacement(r.Release)
		}
		if err != nil {
			return published, fmt.Errorf("publishing %s: %w", r.Release, err)
		}
		published = true
	}
	if plan.changesConfig() {
		if err := f.opts.disk.rename(f.staging(configFile), filepath.Join(f.root, configFile)); err != nil {
			return published, fmt.Errorf("writing %s: %w", configFile, err)
		}
		if err := f.opts.disk.syncFolder(f.root); err != nil {
			return true, fmt.Errorf("syncing %s: %w", f.root, err)
		}
	}
	return true, nil
}

// commitNew puts a staged version in its place if none exists there. The first version of a provider comes with the
// provider's folder, so that the folder never exists without a version.
func (f *folder) commitNew(r *release.Release) error {
	place := f.versionFolder(r)
	label := filepath.Dir(place)
	staged := f.staging(stagedVersions, r.Provider.Label())
	switch _, err := os.Stat(label); {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.opts.disk.rename(staged, label); err != nil {
			return err
		}
		return f.opts.disk.syncFolder(f.root)
	case err != nil:
		return err
	}
	if _, err := os.Lstat(filepath.Join(staged, r.Version)); errors.Is(err, fs.ErrNotExist) {
		return nil // it came with the provider's folder of an earlier version
	}
	if _, err := os.Lstat(place); err == nil {
		// It was an empty folder when it was checked; a folder that is no longer empty stays.
		if err := f.opts.disk.remove(place); err != nil {
			return err
		}
	}
	if err := f.opts.disk.rename(filepath.Join(staged, r.Version), place); err != nil {
		return err
	}
	return f.opts.disk.syncFolder(label)
}

func (f *folder) commitReplacement(r *release.Release) error {
	place := f.versionFolder(r)
	staged := f.staging(stagedVersions, r.Provider.Label(), r.Version)
	err := f.opts.disk.exchange(staged, place)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.renameAside(r, staged, place)
	}
	if err != nil {
		return err
	}
	return f.opts.disk.syncFolder(filepath.Dir(place))
}

// renameAside replaces a version on a file system that can't exchange folders.
func (f *folder) renameAside(r *release.Release, staged, place string) error {
	for _, path := range []string{f.staging(setAside), f.staging(setAside, r.Provider.Label())} {
		if err := f.opts.disk.mkdir(path, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	aside := f.staging(setAside, r.Provider.Label(), r.Version)
	if err := f.opts.disk.rename(place, aside); err != nil {
		return err
	}
	return f.opts.disk.rename(staged, place) // update puts the old one back if this fails
}

// syncAll makes the entries of all folders durable.
func (f *folder) syncAll() error {
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, err := release.ParseLabel(entry.Name()); err != nil || !entry.IsDir() {
			continue
		}
		if err := f.opts.disk.syncFolder(filepath.Join(f.root, entry.Name())); err != nil {
			return err
		}
	}
	return f.opts.disk.syncFolder(f.root)
}

// makeRoot creates the root and missing folders above it, and returns those that it created.
func (f *folder) makeRoot() (made []string, err error) {
	var missing []string
	for path := f.root; ; path = filepath.Dir(path) {
		// A link is looked for before what it points to: another publisher may make the folder in between.
		link, notThere := os.Lstat(path)
		info, err := os.Stat(path)
		if err == nil {
			if !info.IsDir() {
				return nil, fmt.Errorf("%s isn't a folder: choose another, or move it away", path)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("looking for the folder: %w", err)
		}
		if notThere == nil && link.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%s is a link to something that does not exist: make that, or remove the link", path)
		}
		missing = append(missing, path)
	}
	for _, path := range slices.Backward(missing) {
		err := f.opts.disk.mkdir(path, folderMode)
		if errors.Is(err, fs.ErrExist) {
			continue // another publisher was quicker
		}
		if err != nil {
			return made, fmt.Errorf("making the folder: %w", err)
		}
		made = append(made, path)
		if err := f.opts.disk.syncFolder(filepath.Dir(path)); err != nil {
			return made, fmt.Errorf("making the folder: %w", err)
		}
	}
	return made, nil
}
