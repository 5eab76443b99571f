package publish

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// WriteFolder writes a release to dir/<label>/<version>/, as the output of a build or of a fetch.
// The folders above are made. The version is there whole or not at all; one that is there already
// is replaced whatever its version, as nothing is published here, and where it has the same bytes
// nothing is written. There is no clusterctl.yaml.
func WriteFolder(dir string, r *release.Release) error {
	return writeFolder(disk{}, dir, r)
}

func writeFolder(d disk, dir string, given *release.Release) error {
	r, err := release.New(given.Provider, given.Version, given.Files)
	if err != nil {
		return fmt.Errorf("checking the release: %w", err)
	}
	if len(r.Files) == 0 {
		return fmt.Errorf("%s has no files", r)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding %s: %w", dir, err)
	}
	f := &folder{root: root, disk: d, lockTimeout: time.Minute, tell: func(string) {}}
	ctx := context.Background() // a build is not cut off here: it is short, and whole or nothing
	_, err = f.publish(ctx, func() (*Plan, error) {
		there, err := f.published(r)
		if err != nil {
			return nil, err
		}
		plan := planRelease(r, there, f.versionFolder(r), true)
		if plan.Action == Refused { // of a final version, which is no matter before it is published
			plan.Action, plan.Err = Replace, nil
		}
		return &Plan{Target: root, Releases: []ReleasePlan{plan}}, nil
	}, func() error { return nil })
	if err != nil {
		return fmt.Errorf("writing %s to %s: %w", r, root, err)
	}
	return nil
}
