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

// childTasks returns the tasks that a child process can run in addition to the scenarios.
func childTasks() map[string]func(context.Context, string, disk) error {
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

// replaceOften returns a task that replaces a pre-release with different bytes several times.
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

// buildOften returns a task that writes a version with different bytes several times.
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

// runConcurrently runs a task for each number in its own process, all at the same time. It returns
// their outputs; "" is a success.
func runConcurrently(t *testing.T, root string, task func(i int) string) []string {
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
	for i, out := range runConcurrently(t, root, func(int) string { return "same" }) {
		if out != "" {
			t.Errorf("publisher %d: %s", i, out)
		}
	}
	if left := leftovers(tree(t, root)); len(left) > 0 {
		t.Errorf("leftover files: %v", left)
	}
}

func TestTenPublishersOfDifferentBytes(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "repo")
	winner := -1
	for i, out := range runConcurrently(t, root, func(i int) string { return fmt.Sprintf("bytes %d", i) }) {
		switch {
		case out == "" && winner < 0:
			winner = i
		case out == "" || !strings.Contains(out, "published already"):
			t.Errorf("publisher %d: %s; publisher %d succeeded before", i, out, winner)
		}
	}
	if winner < 0 {
		t.Fatal("no publisher succeeded")
	}
	r := someRelease(libvirt, "v0.1.0", fmt.Sprint(winner))
	if d := r.Differences(mustRead(t, root, r)); len(d) > 0 {
		t.Errorf("publisher %d succeeded, but the folder has other bytes: %v", winner, d)
	}
}

func TestTenPublishersOfDifferentVersionsAndProviders(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"version", "provider"} {
		root := filepath.Join(t.TempDir(), "repo")
		for i, out := range runConcurrently(t, root, func(i int) string { return fmt.Sprintf("%s %d", kind, i) }) {
			if out != "" {
				t.Errorf("publisher %d: %s", i, out)
			}
		}
		releases, err := release.Read(root)
		if err != nil || len(releases) != publishers {
			t.Errorf("got %d releases, want %d: %v", len(releases), publishers, err)
		}
		for _, r := range releases {
			if err := (&folder{root: root}).readBackByConfig(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestFolderMadeByAnotherPublisher makes the repository's folder while another publisher makes it too.
func TestFolderMadeByAnotherPublisher(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	for i := range 5000 {
		root := filepath.Join(above, fmt.Sprint(i))
		var other sync.WaitGroup
		other.Go(func() {
			if err := os.Mkdir(root, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
		_, err := (&folder{root: root, opts: Options{disk: unsynced}}).makeRoot()
		other.Wait()
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

func TestTenPublishersReplaceEachOther(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"replacement", "build"} {
		root := filepath.Join(t.TempDir(), "repo")
		for i, out := range runConcurrently(t, root, func(i int) string { return fmt.Sprintf("%s %d", kind, i) }) {
			if out != "" {
				t.Errorf("%s %d: %s", kind, i, out)
			}
		}
		if left := leftovers(tree(t, root)); len(left) > 0 {
			t.Errorf("leftover files: %v", left)
		}
		if _, err := release.Read(root); err != nil {
			t.Error(err)
		}
	}
}

// TestReadersSeeCompleteVersions reads while versions are published and replaced.
func TestReadersSeeCompleteVersions(t *testing.T) {
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
						t.Error("the reader never saw a version")
					}
					return
				default:
				}
				// clusterctl reads files by their paths, too. A replacement may happen between two files.
				place := filepath.Join(root, "infrastructure-libvirt", "v0.1.0-rc.0")
				if _, err := os.Stat(place); errors.Is(err, os.ErrNotExist) && seen == 0 {
					continue
				}
				for _, f := range first.Files {
					data, err := os.ReadFile(filepath.Join(place, f.Name))
					other, _ := second.File(f.Name)
					if err != nil || string(data) != string(f.Data) && string(data) != string(other.Data) {
						t.Errorf("a reader got %q: %v", data, err)
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

// holdLock takes the lock, prints "held", and keeps the lock until the process is killed.
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
	var progress []string
	opts := Options{LockTimeout: 120 * time.Millisecond, Progress: func(line string) { progress = append(progress, line) }}
	r := someRelease(libvirt, "v0.1.0", "")
	_, err = open(t, root, opts).Publish(t.Context(), []*release.Release{r})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder.PID != holder.Process.Pid || locked.Holder.Host == "" || time.Since(locked.Holder.Since) > time.Minute {
		t.Errorf("got %v, want a LockedError with the holder %d", err, holder.Process.Pid)
	}
	if len(progress) != 1 || !strings.Contains(progress[0], fmt.Sprint("process ", holder.Process.Pid)) {
		t.Errorf("progress %q, want one line with the holder's process", progress)
	}
	// The wait ends when the context ends.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := open(t, root, Options{}).Publish(ctx, []*release.Release{r}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Publish with a deadline: %v, want context.DeadlineExceeded", err)
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
	if left := leftovers(tree(t, root)); len(left) > 0 {
		t.Errorf("leftover files: %v", left)
	}
}

// TestLockOfAnotherUser checks that a read-only lock file, left by a killed publisher of another user, can be locked.
func TestLockOfAnotherUser(t *testing.T) {
	for _, text := range []string{"", "old"} {
		root := t.TempDir()
		path := filepath.Join(root, lockFile)
		write(t, path, text)
		denied := 0
		f := &folder{root: root, opts: Options{disk: disk{around: func(op operation, do func() error) error {
			if op.path == path && (op.name == "create" || op.name == "open") {
				denied++
				return &fs.PathError{Op: op.name, Path: path, Err: fs.ErrPermission}
			}
			return do()
		}}}}
		l, err := f.acquire(t.Context())
		if err != nil || denied != 2 {
			t.Fatalf("%q: %v after %d denied operations, want 2", text, err, denied)
		}
		if _, held, err := (disk{}).tryLock(path); held || err != nil {
			t.Errorf("%q: the file is not locked: %v", text, err)
		}
		if h := readHolder(path); h.String() != "another publisher" {
			t.Errorf("%q: held by %s", text, h)
		}
		if err := l.release(true); err != nil {
			t.Error(err)
		}
	}
}

// TestLockRefusesSymlink checks that a symbolic link in place of the lock file is refused and its target untouched.
func TestLockRefusesSymlink(t *testing.T) {
	root, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.Symlink(other, filepath.Join(root, lockFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&folder{root: root}).acquire(t.Context()); err == nil || !strings.Contains(err.Error(), lockFile) {
		t.Errorf("acquire: %v, want an error that names the lock file", err)
	}
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link's target: %v, want that it does not exist", err)
	}
}

func TestLockedErrorText(t *testing.T) {
	err := &LockedError{Place: "/r", Holder: Holder{PID: 7, Host: "h", Since: time.Unix(0, 0).UTC()}, Waited: time.Minute}
	want := "/r is being written to by process 7 on h, since 1970-01-01T00:00:00Z; waited 1m0s: try again when it is done, or end it if it hangs"
	if err.Error() != want {
		t.Errorf("got %s", err)
	}
}
