package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// check reports whether the root is fit to be published to, as far as it is there.
func (f *folder) check() error {
	base := filepath.Base(f.root)
	if _, err := release.ParseVersion(base); err == nil {
		return fmt.Errorf("%s has the name of a version: publish to the repository's root, the folder above <label>/<version>", f.root)
	}
	info, err := os.Stat(f.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is made; makeRoot knows what may be in the way
	}
	if err != nil {
		return withAdvice(fmt.Errorf("looking at the repository: %w", err))
	}
	if !info.IsDir() {
		return fmt.Errorf("%s isn't a folder: a local repository is a folder", f.root)
	}
	names, err := readFolderIfAny(f.root)
	if err != nil {
		return withAdvice(fmt.Errorf("looking at the repository: %w", err))
	}
	_, notLabel := release.ParseLabel(base)
	for _, name := range names {
		if _, notVersion := release.ParseVersion(name); notLabel == nil && notVersion == nil {
			return fmt.Errorf("%s is a provider's folder: publish to the repository's root, %s", f.root, filepath.Dir(f.root))
		}
	}
	return nil
}

// published returns what is in a release's place, or nil if there is nothing.
func (f *folder) published(r *release.Release) (*release.Release, error) {
	place := f.versionFolder(r)
	for _, path := range []string{filepath.Dir(place), place} {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, withAdvice(fmt.Errorf("looking for %s: %w", r, err))
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("%s: %s isn't a folder (%s): move it away", r, path, info.Mode().Type())
		}
	}
	there, err := release.ReadVersion(place)
	if errors.Is(err, release.ErrNoRelease) {
		return nil, nil // an empty folder, which gives way
	}
	if err != nil {
		return nil, withAdvice(fmt.Errorf("%s can't be compared with what is in its place: %w", r, err))
	}
	return there, nil
}

// plan returns what publishing the releases to the folder would change, its clusterctl.yaml included where it
// has one.
func (f *folder) plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	plan := &Plan{Target: f.root}
	for _, r := range releases {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("comparing %s with what is published: %w", r, err)
		}
		there, err := f.published(r)
		if err != nil {
			return nil, err
		}
		plan.Releases = append(plan.Releases, planRelease(r, there, f.versionFolder(r), f.opts.Replace))
	}
	var err error
	if f.overrides == nil {
		plan.Config, err = planConfig(f.root, releases)
	}
	return plan, err
}

func planRelease(r, there *release.Release, place string, replace bool) ReleasePlan {
	plan := ReleasePlan{Release: r, Place: place}
	if there != nil {
		plan.Differences = there.Differences(r)
	}
	plan.decide(there != nil, replace, false)
	return plan
}

// publish carries out the plan, which it computes again under the lock, then calls verify, and returns the plan. If there
// is nothing to do, nothing is written, not even a lock file.
func (f *folder) publish(ctx context.Context, plan func() (*Plan, error), verify func() error) (*Plan, error) {
	first, err := plan()
	if err != nil {
		first, err = plan() // what another publisher replaced just then could not be read
	}
	if err == nil {
		err = first.Err()
	}
	// And what one replaces now can be read under the lock.
	if err != nil && (first != nil || !f.unfinished()) {
		return nil, err
	}
	if err == nil && !first.Changes() && !f.unfinished() {
		return first, verify()
	}
	done, err := f.update(ctx, plan, verify)
	if first != nil && !first.Changes() && (errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)) {
		return first, verify() // what a killed run left stays where nothing can be written; the release is there
	}
	return done, err
}

// versions returns the versions of a provider that are published, in the order of their names.
func (f *folder) versions(provider release.Provider) []string {
	names, err := readFolderIfAny(filepath.Join(f.root, provider.Label()))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := release.ParseVersion(name)
		return err != nil
	})
}
