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

// failing returns a disk whose operations fail: the one with this number, counted from zero, or
// from there on all.
func failing(number int, onwards bool, failure error) disk {
	var counted atomic.Int64
	return disk{around: func(op operation, do func() error) error {
		now := int(counted.Add(1)) - 1
		if now == number || onwards && now > number {
			if op.half != nil {
				_ = op.half() // a write that comes to nothing has often written something
			}
			return &fs.PathError{Op: op.name, Path: op.path, Err: failure}
		}
		return unlessSync(op, do)
	}}
}

// unsynced is a disk for tests that are not about power cuts: it does all but sync, which takes
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

// scenario is something that is done to a folder, to be cut off at each change of the disk.
type scenario struct {
	// prepare is what is there before.
	prepare func(root string) error
	// do is what is cut off.
	do func(ctx context.Context, root string, d disk) error
	// release is what do brings.
	release *release.Release
	// old is what is in its place before; nil if nothing is.
	old *release.Release
	// gap says that between old and new there is a moment without either.
	gap bool
	// others are versions that have to be there all the time.
	others []*release.Release
	// config says that there is a clusterctl.yaml, and that this is the text to be kept in it.
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
		"second provider, with a configuration of its own": {
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

// whole returns an error if a reader sees only a part of a version.
func (s scenario) whole(ctx context.Context, root string) error {
	for _, r := range s.others {
		if err := s.is(ctx, root, r); err != nil {
			return err
		}
	}
	place := filepath.Join(root, s.release.Provider.Label(), s.release.Version)
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		if s.old != nil && !s.gap {
			return errors.New("the old version is gone, and there is no new one")
		}
	} else if err := s.is(ctx, root, s.release); err != nil {
		if s.old == nil || s.is(ctx, root, s.old) != nil {
			return err
		}
	}
	if labels, err := os.ReadDir(root); err == nil {
		for _, label := range labels {
			if versions, err := os.ReadDir(filepath.Join(root, label.Name())); err == nil && len(versions) == 0 && label.Name() != stagingFolder {
				return errors.New(label.Name() + " is there without a version")
			}
		}
	}
	return s.configParses(root)
}

// is reports whether clusterctl and release.Read find exactly this release.
func (s scenario) is(ctx context.Context, root string, want *release.Release) error {
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
			return errors.New("the configuration names a provider that is not there: " + item.name)
		}
	}
	if !strings.HasPrefix(string(text), s.configText) {
		return errors.New("the configuration lost what was in it")
	}
	return nil
}

// rerun does it again, now not cut off, and returns an error unless it ends right.
func (s scenario) rerun(t *testing.T, root string, want map[string]string) error {
	t.Helper()
	if err := s.do(t.Context(), root, unsynced); err != nil {
		return err
	}
	if err := s.is(t.Context(), root, s.release); err != nil {
		return err
	}
	if got := tree(t, root); !reflect.DeepEqual(want, got) {
		return errors.New("the folder differs from that of a run that was not cut off")
	}
	return nil
}

// finished returns which changes of the disk a scenario needs, and what the folder is then.
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
	if left := hidden(want); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	return operations, want
}

// TestFailureAtEachChange lets each change of the disk fail, once and for good.
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
						t.Fatalf("%v at operation %d, %s %s, and from there on %v: %v", a.failure, number, op.name, op.path, onwards, err)
					}
				}
			}
		})
	}
}

// failed does a scenario on a disk that fails, and looks at what it left and at a re-run.
func (s scenario) failed(t *testing.T, root string, number int, onwards bool, failure error, hint string, want map[string]string) error {
	above := filepath.Dir(root)
	if err := s.prepare(root); err != nil {
		return err
	}
	before := tree(t, above)
	err := s.do(t.Context(), root, failing(number, onwards, failure))
	if err == nil || !errors.Is(err, failure) || !strings.Contains(err.Error(), hint) || !strings.Contains(err.Error(), filepath.Dir(above)) {
		return fmt.Errorf("the error is %w", err)
	}
	// Without an exchange and without a disk to put the old version back, it waits for the next run.
	if err := s.whole(t.Context(), root); err != nil && (!s.gap || !onwards) {
		return err
	}
	if !onwards {
		after := tree(t, above)
		if left := hidden(after); len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != lockFile {
			return fmt.Errorf("left behind %v", left)
		}
		if s.is(t.Context(), root, s.release) != nil && !sameButForLock(before, after) {
			return fmt.Errorf("not published, but the folder changed from %v to %v", before, after)
		}
	}
	if err := s.rerun(t, root, want); err != nil {
		return fmt.Errorf("the re-run: %w", err)
	}
	return os.RemoveAll(above)
}

// sameButForLock compares trees; the lock file may stay where removing it is what failed.
func sameButForLock(before, after map[string]string) bool {
	a, b := maps.Clone(before), maps.Clone(after)
	for _, m := range []map[string]string{a, b} {
		maps.DeleteFunc(m, func(path, _ string) bool { return filepath.Base(path) == lockFile })
	}
	return reflect.DeepEqual(a, b)
}
