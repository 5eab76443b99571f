package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestInstall checks that the released program is installed if it has the right checksum, and that a program is built
// if there is no release.
func TestInstall(t *testing.T) {
	prerequisite.Program(t, "curl")
	d := distribution{version: "v1.2.3"}
	platform := program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	archive, err := d.tarball([]program.File{{Path: name, Mode: 0o755, Data: []byte("released")}, {Path: "man/x.1", Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	file := d.baseName(platform) + ".tar.gz"
	served := t.TempDir()
	treetest.Write(t, served, map[string]string{
		"v1.2.3/" + file: string(archive), "v1.2.3/SHA256SUMS": release.Digest(archive) + "  " + file + "\n" + strings.Repeat("0", 64) + "  other.tar.gz\n",
		"v1.2.4/" + strings.ReplaceAll(file, "v1.2.3", "v1.2.4"): string(archive),
		"v1.2.4/SHA256SUMS": strings.Repeat("0", 64) + "  " + strings.ReplaceAll(file, "v1.2.3", "v1.2.4") + "\n",
	})
	server := httptest.NewServer(http.FileServer(http.Dir(served)))
	defer server.Close()

	// This script replaces the compiler. It writes its arguments to the file after -o.
	programs := t.TempDir()
	treetest.Write(t, programs, map[string]string{"go": "#!/bin/sh\nall=$*\nwhile [ \"$1\" != -o ]; do shift; done\necho \"$all\" > \"$2\"\n"})
	if err := os.Chmod(filepath.Join(programs, "go"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ version, content, want string }{
		{"v1.2.3", "released", "installed clusterctl-release v1.2.3"},
		{"v1.2.4", "", "FAILED"},
		{"v9.9.9", "-X main.version=v9.9.9", "building it"},
		{"main", "-X main.version=main", "built clusterctl-release"},
		{"", "./cmd/clusterctl-release", "built clusterctl-release"},
	} {
		folder := filepath.Join(t.TempDir(), "bin")
		command := exec.CommandContext(t.Context(), filepath.Join(pinned.Root(t), "hack", "install"), folder, tc.version)
		command.Env = append(os.Environ(), "CLUSTERCTL_RELEASE_DOWNLOADS="+server.URL, "NO_PROXY=127.0.0.1",
			"PATH="+programs+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := command.CombinedOutput()
		if (err != nil) != (tc.content == "") || !strings.Contains(string(out), tc.want) {
			t.Errorf("version %q: %v: %s; want %q", tc.version, err, out, tc.want)
		}
		content, _ := os.ReadFile(filepath.Join(folder, name))
		if (len(content) > 0) != (tc.content != "") || !strings.Contains(string(content), tc.content) {
			t.Errorf("version %q: the program is %q, want %q", tc.version, content, tc.content)
		}
	}
}
