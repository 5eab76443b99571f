//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// nobody is the ID of the user without permissions.
const nobody = 65534

// TestReadOnlyFolder checks that errors name a read-only folder and that it stays unchanged. Modes don't
// restrict root, so the program then runs as another user.
func TestReadOnlyFolder(t *testing.T) {
	root, err := os.MkdirTemp("", "clusterctl-release-test-")
	if err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(root, "locked")
	t.Cleanup(func() {
		_ = os.Chmod(locked, 0o700)
		_ = os.RemoveAll(root)
	})
	tree := filepath.Join(root, "demo")
	if err := os.CopyFS(tree, os.DirFS(treetest.Demo(t))); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(locked, 0o750); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "chmod", "-R", "a+rX", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := filepath.Join(buildProgram(t), "clusterctl-release")
	execute := func(line string) outcome {
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(line)...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "HOME="+root)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	}
	writable := filepath.Join(root, "writable")
	if err := os.Mkdir(writable, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(writable, 0o777); err != nil {
		t.Fatal(err)
	}
	if built := execute("build --version v0.1.0 --output " + writable); built.status != exitFine {
		t.Fatalf("building: %s", built.stderr)
	}
	if err := os.Chmod(locked, 0o555); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"build --version v0.1.0 --output " + locked,
		"build --version v0.1.0 --output " + filepath.Join(locked, "new"),
		"publish " + writable + " --to " + locked,
		"publish " + writable + " --to " + filepath.Join(locked, "new"),
		"fetch " + writable + " --output " + locked,
		"init --output " + filepath.Join(locked, "new.yaml"),
	} {
		t.Run(line, func(t *testing.T) {
			requireFailure(t, execute(line), exitFailed, locked, "permission denied")
			if left := listing(t, locked); len(left) > 0 {
				t.Errorf("a failed command left %v", left)
			}
		})
	}
}
