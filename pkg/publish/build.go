package publish

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// WriteFolder writes a release to dir/<label>/<version>/, as the output of a build or of a fetch. It creates missing
// folders above. The version appears as a whole. An existing one is replaced whatever its version, because nothing is
// published here; if it has the same bytes, nothing is written. WriteFolder writes no clusterctl.yaml. It writes the
// release's Source next to its files, as release.SourceFile.
func WriteFolder(dir string, r *release.Release) error {
	return writeFolder(disk{}, dir, r)
}

func writeFolder(d disk, dir string, given *release.Release) error {
	r, err := wellFormed(given)
	if err != nil {
		return err
	}
	if len(r.Files) == 0 {
		return fmt.Errorf("%s has no files", r)
	}
	if _, ok := r.File(release.SourceFile); ok {
		return fmt.Errorf("%s has a file %s: a build writes a file of that name itself; give the release's file another name", r, release.SourceFile)
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("finding %s: %w", dir, err)
	}
	f := &folder{root: root, opts: Options{disk: d, LockTimeout: time.Minute}, records: true}
	ctx := context.Background() // writing is short, and not interrupted
	_, err = f.publish(ctx, func() (*Plan, error) {
		there, err := f.published(r)
		if err != nil {
			return nil, err
		}
		plan := planRelease(r, there, f.versionFolder(r), true)
		if plan.Action == store.Refused || plan.Action == store.Unchanged && !reflect.DeepEqual(there.Source, r.Source) {
			plan.Action, plan.Err = store.Replace, nil // also of a final version, which is not published yet
		}
		return &Plan{Target: root, Releases: []ReleasePlan{plan}}, nil
	}, func() error { return nil })
	if err != nil {
		return fmt.Errorf("writing %s to %s: %w", r, root, err)
	}
	return nil
}
