package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const readOnlyError = syscall.EROFS

// failing returns a disk on which the operation with this number fails, counted from zero. With
// onwards, all later operations fail as well.
func failing(number int, onwards bool, failure error) disk {
	var counted atomic.Int64
	return disk{around: func(op operation, do func() error) error {
		now := int(counted.Add(1)) - 1
		if now == number || onwards && now > number {
			if op.half != nil {
				_ = op.half() // a failed write has often written some bytes
			}
			return &fs.PathError{Op: op.name, Path: op.path, Err: failure}
		}
		return unlessSync(op, do)
	}}
}

// unsynced is a disk for tests that are not about power cuts. It doesn't sync, because syncs take
// most of the time.
var unsynced = disk{around: func(op operation, do func() error) error { return unlessSync(op, do) }}

func unlessSync(op operation, do func() error) error {
	if op.name == "fsync" {
		return nil
	}
	return do()
}

// withoutExchange returns a disk on a file system that can't exchange folders.
func withoutExchange(d disk) disk {
	return disk{around: func(op operation, do func() error) error {
		if op.name == "exchange" {
			return &fs.PathError{Op: op.name, Path: op.path, Err: errors.ErrUnsupported}
		}
		return d.around(op, do)
	}}
}

// scenario is a task that changes a folder. The tests stop it at each change of the disk.
type scenario struct {
	// prepare creates the state before the task.
	prepare func(root string) error
	// do runs the task.
	do func(ctx context.Context, root string, d disk) error
	// release is the release that do publishes.
	release *release.Release
	// old is the release that it replaces; nil if there is none.
	old *release.Release
	// gap reports that for a moment neither the old nor the new release exists.
	gap bool
	// others are versions that must exist all the time.
	others []*release.Release
	// config reports that a clusterctl.yaml exists, and configText is the text that must stay in it.
	config     bool
	configText string
}

func publishDo(replace bool, releases ...*release.Release) func(context.Context, string, disk) error {
	return func(ctx context.Context, root string, d disk) error {
		p, err := Open(root, Options{Replace: replace, disk: d})
		if err != nil {
			return err
		}
		_, err = p.Publish(ctx, releases)
		return err
	}
}

func scenarios() map[string]scenario {
	stable, second := someRelease(libvirt, "v0.1.0", "first"), someRelease(libvirt, "v0.1.1", "second")
	oldRC, newRC := someRelease(libvirt, "v0.2.0-rc.0", "old"), someRelease(libvirt, "v0.2.0-rc.0", "new")
	newRC.Files = newRC.Files[1:] // another number of files
	oldBuild, newBuild := someRelease(libvirt, "v0.1.0", "old"), someRelease(libvirt, "v0.1.0", "new")
	foreign := someRelease(micro, "v1.0.0", "")
	const text = "# mine\nSECRET: x\n"
	published := func(releases ...*release.Release) func(string) error {
		return func(root string) error { return publishDo(false, releases...)(context.Background(), root, unsynced) }
	}
	plainFolder := func(ctx context.Context, root string, d disk) error { return writeFolder(d, root, newBuild) }
	return map[string]scenario{
		"first publish":  {prepare: func(string) error { return nil }, do: publishDo(false, stable), release: stable, config: true},
		"second version": {prepare: published(stable), do: publishDo(false, second), release: second, others: []*release.Release{stable}, config: true},
		"second provider, with its own configuration": {
			prepare: func(root string) error {
				if err := published(foreign)(root); err != nil {
					return err
				}
				path := filepath.Join(root, configFile)
				old, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				return os.WriteFile(path, append([]byte(text), old...), 0o644)
			},
			do: publishDo(false, stable), release: stable, others: []*release.Release{foreign}, config: true, configText: text,
		},
		"replace": {prepare: published(stable, oldRC), do: publishDo(true, newRC), release: newRC, old: oldRC, others: []*release.Release{stable}, config: true},
		"replace without exchange": {
			prepare: published(stable, oldRC),
			do: func(ctx context.Context, root string, d disk) error {
				return publishDo(true, newRC)(ctx, root, withoutExchange(d))
			},
			release: newRC, old: oldRC, gap: true, others: []*release.Release{stable}, config: true,
		},
		"build":        {prepare: func(string) error { return nil }, do: plainFolder, release: newBuild},
		"build again":  {prepare: func(root string) error { return writeFolder(unsynced, root, oldBuild) }, do: plainFolder, release: newBuild, old: oldBuild},
		"many at once": {prepare: published(stable), do: publishDo(false, second, foreign), release: second, others: []*release.Release{stable}, config: true},
	}
}

// checkComplete returns an error if a reader sees only a part of a version.
func (s scenario) checkComplete(ctx context.Context, root string) error {
	for _, r := range s.others {
		if err := s.checkRelease(ctx, root, r); err != nil {
			return err
		}
	}
	place := filepath.Join(root, s.release.Provider.Label(), s.release.Version)
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		if s.old != nil && !s.gap {
			return errors.New("the old version was removed, and there is no new one")
		}
	} else if err := s.checkRelease(ctx, root, s.release); err != nil {
		if s.old == nil || s.checkRelease(ctx, root, s.old) != nil {
			return err
		}
	}
	if labels, err := os.ReadDir(root); err == nil {
		for _, label := range labels {
			if versions, err := os.ReadDir(filepath.Join(root, label.Name())); err == nil && len(versions) == 0 && label.Name() != stagingFolder {
				return errors.New(label.Name() + " has no version")
			}
		}
	}
	return s.configParses(root)
}

// checkRelease returns an error unless clusterctl and release.Read find exactly this release.
func (s scenario) checkRelease(ctx context.Context, root string, want *release.Release) error {
	got, err := release.ReadVersion(filepath.Join(root, want.Provider.Label(), want.Version))
	if err != nil {
		return err
	}
	if d := want.Differences(got); len(d) > 0 {
		return errors.New(want.String() + " differs: " + d[0].File + " " + d[0].Kind)
	}
	return (&folder{root: root}).readBack(ctx, want)
}

func (s scenario) configParses(root string) error {
	text, err := os.ReadFile(filepath.Join(root, configFile))
	if errors.Is(err, fs.ErrNotExist) && len(s.others) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	doc, err := parseConfig(configFile, text)
	if err != nil {
		return err
	}
	for _, item := range doc.items {
		if _, err := os.Stat(filepath.Join(root, map[string]string{"libvirt": "infrastructure-libvirt", "micro": "bootstrap-micro"}[item.name])); err != nil {
			return errors.New("the configuration names a provider without a folder: " + item.name)
		}
	}
	if !strings.HasPrefix(string(text), s.configText) {
		return errors.New("the configuration lost its previous text")
	}
	return nil
}

// rerun runs the scenario again without a fault, and returns an error unless the result is right.
func (s scenario) rerun(t *testing.T, root string, want map[string]string) error {
	t.Helper()
	if err := s.do(t.Context(), root, unsynced); err != nil {
		return err
	}
	if err := s.checkRelease(t.Context(), root, s.release); err != nil {
		return err
	}
	if got := tree(t, root); !reflect.DeepEqual(want, got) {
		return errors.New("the folder differs from the folder of a run without a fault")
	}
	return nil
}

// finished returns the changes of the disk that a scenario makes, and the resulting folder.
func (s scenario) finished(t *testing.T, root string) ([]operation, map[string]string) {
	t.Helper()
	if err := s.prepare(root); err != nil {
		t.Fatal(err)
	}
	var operations []operation
	recording := disk{around: func(op operation, do func() error) error {
		operations = append(operations, op)
		return unlessSync(op, do)
	}}
	if err := s.do(t.Context(), root, recording); err != nil {
		t.Fatal(err)
	}
	want := tree(t, root)
	if left := leftovers(want); len(left) > 0 {
		t.Fatalf("leftover files: %v", left)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	return operations, want
}

// TestFailureAtEachChange makes each change of the disk fail, once and permanently.
func TestFailureAtEachChange(t *testing.T) {
	advice := []struct {
		failure error
		hint    string
	}{
		{syscall.ENOSPC, "free some space"}, {syscall.EROFS, "can be written to"}, {syscall.EIO, "the disk fails"},
	}
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "above", "repo")
			operations, want := s.finished(t, root)
			for number, op := range operations {
				for _, onwards := range []bool{false, true} {
					a := advice[number%len(advice)]
					if err := s.failed(t, root, number, onwards, a.failure, a.hint, want); err != nil {
						t.Fatalf("%v at operation %d, %s %s, all later ones too: %v: %v", a.failure, number, op.name, op.path, onwards, err)
					}
				}
			}
		})
	}
}

// failed runs a scenario on a failing disk, and checks the folder after it and after a re-run.
func (s scenario) failed(t *testing.T, root string, number int, onwards bool, failure error, hint string, want map[string]string) error {
	above := filepath.Dir(root)
	if err := s.prepare(root); err != nil {
		return err
	}
	before := tree(t, above)
	err := s.do(t.Context(), root, failing(number, onwards, failure))
	if err == nil || !errors.Is(err, failure) || !strings.Contains(err.Error(), hint) || !strings.Contains(err.Error(), filepath.Dir(above)) {
		return fmt.Errorf("the scenario's error: %w", err)
	}
	// If the exchange and all later changes fail, only the next run restores the old version.
	if err := s.checkComplete(t.Context(), root); err != nil && (!s.gap || !onwards) {
		return err
	}
	if !onwards {
		after := tree(t, above)
		if left := leftovers(after); len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != lockFile {
			return fmt.Errorf("leftover files %v", left)
		}
		if s.checkRelease(t.Context(), root, s.release) != nil && !sameExceptLock(before, after) {
			return fmt.Errorf("not published, but the folder changed from %v to %v", before, after)
		}
	}
	if err := s.rerun(t, root, want); err != nil {
		return fmt.Errorf("the re-run: %w", err)
	}
	return os.RemoveAll(above)
}

// sameExceptLock compares trees without their lock files, because the removal of the lock file may fail.
func sameExceptLock(before, after map[string]string) bool {
	a, b := maps.Clone(before), maps.Clone(after)
	for _, m := range []map[string]string{a, b} {
		maps.DeleteFunc(m, func(path, _ string) bool { return filepath.Base(path) == lockFile })
	}
	return reflect.DeepEqual(a, b)
}
