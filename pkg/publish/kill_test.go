package publish

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The variables with which this test binary runs itself as another process.
const (
	childTask = "PUBLISH_TEST_CHILD"
	childRoot = "PUBLISH_TEST_ROOT"
	childKill = "PUBLISH_TEST_KILL"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(childTask); task != "" {
		os.Exit(child(task, os.Getenv(childRoot), os.Getenv(childKill)))
	}
	withoutPipelines()
	os.Exit(m.Run())
}

// child runs a scenario or a child task in its own process. If the task fails, it prints the error
// and returns the exit status 3.
func child(task, root, kill string) int {
	do := childTasks()[task]
	if do == nil {
		do = scenarios()[task].do
	}
	if err := do(context.Background(), root, killing(kill)); err != nil {
		fmt.Fprintf(os.Stderr, "%T: %v", err, err)
		return 3
	}
	return 0
}

// killing returns a disk that kills the process before the change with the number in the text, or
// in the middle of this change if "half" follows.
func killing(text string) disk {
	if text == "" {
		return disk{}
	}
	number, half := strings.CutSuffix(text, " half")
	at, err := strconv.Atoi(number)
	if err != nil {
		panic(err)
	}
	counted := 0
	return disk{around: func(op operation, do func() error) error {
		now := counted
		counted++
		if now != at {
			return unlessSync(op, do)
		}
		if half && op.half != nil {
			_ = op.half()
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}}
}

// command returns the command that runs a task in another process with the umask of this one.
func command(t *testing.T, task, root, kill string, env ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), childTask+"="+task, childRoot+"="+root, childKill+"="+kill, "GOMAXPROCS=2")
	c.Env = append(c.Env, env...)
	return c
}

// TestKilledAtEachChange kills a process with SIGKILL before each change that it makes to the
// disk and in the middle of each write. A reader must see complete versions only, and a re-run
// must succeed.
func TestKilledAtEachChange(t *testing.T) {
	slots := make(chan struct{}, 4)
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			operations, _ := s.finished(t, filepath.Join(dir, "root"))
			var waiting sync.WaitGroup
			for number, op := range operations {
				for _, kill := range []string{strconv.Itoa(number), strconv.Itoa(number) + " half"} {
					if strings.HasSuffix(kill, "half") && op.half == nil {
						continue
					}
					waiting.Go(func() {
						slots <- struct{}{}
						defer func() { <-slots }()
						s.killed(t, name, filepath.Join(dir, "kill "+kill), kill)
					})
				}
			}
			waiting.Wait()
		})
	}
}

// killed runs one scenario in a process that is killed, and checks the folder that it left.
func (s scenario) killed(t *testing.T, name, root, kill string) {
	if err := s.prepare(root); err != nil {
		t.Error(err)
		return
	}
	out, err := command(t, name, root, kill).CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process was not killed at %s: %v: %s", kill, err, out)
		return
	}
	if err := s.checkComplete(t.Context(), root); err != nil {
		t.Errorf("killed at %s: %v", kill, err)
	}
	if err := s.do(t.Context(), root, unsynced); err != nil {
		t.Errorf("killed at %s: the re-run: %v", kill, err)
		return
	}
	if err := s.checkRelease(t.Context(), root, s.release); err != nil {
		t.Errorf("killed at %s: after the re-run: %v", kill, err)
	}
	if err := s.checkComplete(t.Context(), root); err != nil {
		t.Errorf("killed at %s: after the re-run: %v", kill, err)
	}
	if left := leftovers(tree(t, root)); len(left) > 0 {
		t.Errorf("killed at %s: leftover files %v after the re-run", kill, left)
	}
}
