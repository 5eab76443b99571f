package publish

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// publishers is how many processes publish at once.
const publishers = 10

// children are what a process of its own does beside the scenarios.
func children() map[string]func(context.Context, string, disk) error {
	do := func(r *release.Release) func(context.Context, string, disk) error { return publishDo(false, r) }
	all := map[string]func(context.Context, string, disk) error{
		"same": do(someRelease(libvirt, "v0.1.0", "same")),
	}
	for i := range publishers {
		all[fmt.Sprintf("bytes %d", i)] = do(someRelease(libvirt, "v0.1.0", fmt.Sprint(i)))
		all[fmt.Sprintf("replacement %d", i)] = replaceOften(i)
		all[fmt.Sprintf("build %d", i)] = buildOften(i)
		all[fmt.Sprintf("version %d", i)] = do(someRelease(libvirt, fmt.Sprintf("v0.%d.0", i), ""))
		all[fmt.Sprintf("provider %d", i)] = do(someRelease(numbered(i), "v0.1.0", ""))
	}
	all["hold the lock"] = holdLock
	all["overrides"] = publishOverrides
	return all
}

// replaceOften publishes other bytes for a pre-release, again and again.
func replaceOften(i int) func(context.Context, string, disk) error {
	return func(ctx context.Context, root string, _ disk) error {
		for round := range 5 {
			r := someRelease(libvirt, "v0.1.0-rc.0", fmt.Sprint(i, round))
			if err := publishDo(true, r)(ctx, root, unsynced); err != nil {
				return err
			}
		}
		return nil
	}
}

// buildOften writes other bytes for a version, again and again.
func buildOften(i int) func(context.Context, string, disk) error {
	return func(_ context.Context, root string, _ disk) error {
		for round := range 5 {
			if err := writeFolder(unsynced, root, someRelease(libvirt, "v0.1.0", fmt.Sprint(i, round))); err != nil {
				return err
			}
		}
		return nil
	}
}

func numbered(i int) release.Provider {
	return release.Provider{Name: fmt.Sprintf("p%d", i), Type: release.ProviderTypes()[1+i%6]}
}

// atOnce runs a task for each number as a process of its own, all at once, and returns their
// output; "" is a success.
func atOnce(t *testing.T, root string, task func(i int) string) []string {
	t.Helper()
	outputs := make([]string, publishers)
	var running sync.WaitGroup
	for i := range publishers {
		running.Go(func() {
			out, err := command(t, task(i), root, "").CombinedOutput()
			outputs[i] = string(out)
			if err != nil && outputs[i] == "" {
				outputs[i] = err.Error()
			}
		})
	}
	running.Wait()
	return outputs
}

func TestTenPublishersOfSameBytes(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "above", "repo")
	for i, out := range atOnce(t, root, func(int) string { return "same" }) {
		if out != "" {
			t.Errorf("publisher %d: %s", i, out)
		}
	}
	if left := hidden(tree(t, root)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTenPublishersOfOtherBytes(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "repo")
	winner := -1
	for i, out := range atOnce(t, root, func(i int) string { return fmt.Sprintf("bytes %d", i) }) {
		switch {
		case out == "" && winner < 0:
			winner = i
		case out == "" || !strings.Contains(out, "published already"):
			t.Errorf("publisher %d: %s (%d had won)", i, out, winner)
		}
	}
	if winner < 0 {
		t.Fatal("nobody won")
	}
	r := someRelease(libvirt, "v0.1.0", fmt.Sprint(winner))
	if d := r.Differences(mustRead(t, root, r)); len(d) > 0 {
		t.Errorf("publisher %d won, but its bytes are not there: %v", winner, d)
	}
}

func TestTenPublishersOfOtherVersionsAndProviders(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"version", "provider"} {
		root := filepath.Join(t.TempDir(), "repo")
		for i, out := range atOnce(t, root, func(i int) string { return fmt.Sprintf("%s %d", kind, i) }) {
			if out != "" {
				t.Errorf("publisher %d: %s", i, out)
			}
		}
		releases, err := release.Read(root)
		if err != nil || len(releases) != publishers {
			t.Errorf("%d releases of %d: %v", len(releases), publishers, err)
		}
		for _, r := range releases {
			if err := (&folder{root: root}).readBackByConfig(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTenPublishersReplaceEachOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"replacement", "build"} {
		root := filepath.Join(t.TempDir(), "repo")
		for i, out := range atOnce(t, root, func(i int) string { return fmt.Sprintf("%s %d", kind, i) }) {
			if out != "" {
				t.Errorf("%s %d: %s", kind, i, out)
			}
		}
		if left := hidden(tree(t, root)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if _, err := release.Read(root); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersSeeWholeVersions reads while versions are published and replaced.
func TestReadersSeeWholeVersions(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "repo")
	first, second := someRelease(libvirt, "v0.1.0-rc.0", "first"), someRelease(libvirt, "v0.1.0-rc.0", "second")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			seen := 0
			for {
				select {
				case <-done:
					if seen == 0 {
						t.Error("nothing was read at all")
					}
					return
				default:
				}
				// By their paths, as clusterctl does. Reading one by one may straddle a replacement.
				place := filepath.Join(root, "infrastructure-libvirt", "v0.1.0-rc.0")
				if _, err := os.Stat(place); errors.Is(err, os.ErrNotExist) && seen == 0 {
					continue
				}
				for _, f := range first.Files {
					data, err := os.ReadFile(filepath.Join(place, f.Name))
					other, _ := second.File(f.Name)
					if err != nil || string(data) != string(f.Data) && string(data) != string(other.Data) {
						t.Errorf("a reader saw %q: %v", data, err)
						return
					}
				}
				seen++
			}
		})
	}
	for range 20 {
		publish(t, root, Options{Replace: true, disk: unsynced}, first)
		publish(t, root, Options{Replace: true, disk: unsynced}, second)
	}
	close(done)
	readers.Wait()
}

// holdLock takes the lock, says so, and keeps it until it is killed.
func holdLock(ctx context.Context, root string, _ disk) error {
	f := &folder{root: root}
	if _, err := f.acquire(ctx); err != nil {
		return err
	}
	fmt.Println("held")
	<-time.After(time.Minute)
	return nil
}

func TestLockHeldByAnotherProcess(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "repo")
	holder := command(t, "hold the lock", root, "")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	var told []string
	opts := Options{LockTimeout: 120 * time.Millisecond, Progress: func(line string) { told = append(told, line) }}
	r := someRelease(libvirt, "v0.1.0", "")
	_, err = open(t, root, opts).Publish(t.Context(), []*release.Release{r})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != holder.Process.Pid || locked.Holder.Host == "" || time.Since(locked.Holder.Since) > time.Minute {
		t.Errorf("want the holder %d, got %v", holder.Process.Pid, err)
	}
	if len(told) != 1 || !strings.Contains(told[0], fmt.Sprint("process ", holder.Process.Pid)) {
		t.Errorf("was told %q", told)
	}
	// Waiting ends when it is interrupted.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := open(t, root, Options{}).Publish(ctx, []*release.Release{r}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not stopped: %v", err)
	}
	// The next publisher continues when the holder dies.
	published := make(chan error)
	go func() {
		_, err := open(t, root, Options{}).Publish(t.Context(), []*release.Release{r})
		published <- err
	}()
	time.Sleep(60 * time.Millisecond)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	if err := <-published; err != nil {
		t.Errorf("after the holder died: %v", err)
	}
	if left := hidden(tree(t, root)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestLockOfAnotherUser: the lock file of a killed publisher may belong to another user, and be only readable.
func TestLockOfAnotherUser(t *testing.T) {
	for _, text := range []string{"", "old"} {
		root := t.TempDir()
		path := filepath.Join(root, lockFile)
		write(t, path, text)
		denied := 0
		f := &folder{root: root, disk: disk{around: func(op operation, do func() error) error {
			if op.path == path && (op.name == "create" || op.name == "open") {
				denied++
				return &fs.PathError{Op: op.name, Path: path, Err: fs.ErrPermission}
			}
			return do()
		}}}
		l, err := f.acquire(t.Context())
		if err != nil || denied != 2 {
			t.Fatalf("%q: %v after %d refusals", text, err, denied)
		}
		if _, held, err := (disk{}).tryLock(path); held || err != nil {
			t.Errorf("%q: it is not locked: %v", text, err)
		}
		if h := readHolder(path); h.String() != "another publisher" {
			t.Errorf("%q: held by %s", text, h)
		}
		if err := l.release(true); err != nil {
			t.Error(err)
		}
	}
}

// TestLockIsNoLink: what a link in the lock file's place leads to is not touched.
func TestLockIsNoLink(t *testing.T) {
	root, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, filepath.Join(root, lockFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&folder{root: root}).acquire(t.Context()); err == nil || !strings.Contains(err.Error(), lockFile) {
		t.Errorf("it is locked: %v", err)
	}
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link's target: %v", err)
	}
}

func TestLockedErrorText(t *testing.T) {
	err := &LockedError{Place: "/r", Holder: Holder{PID: 7, Host: "h", Since: time.Unix(0, 0).UTC()}, Waited: time.Minute}
	want := "/r is being written to by process 7 on h, since 1970-01-01T00:00:00Z; waited 1m0s: try again when it is done, or end it if it hangs"
	if err.Error() != want {
		t.Errorf("got %s", err)
	}
}
