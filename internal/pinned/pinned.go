// Package pinned gives tests the programs with which they compare this project: each is built from the exactly pinned
// module in its folder under hack/tools, once for each version, by the same script that the Makefile uses.
package pinned

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// Root returns the project's root folder.
func Root(tb testing.TB) string {
	tb.Helper()
	root, err := FindRoot()
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

// FindRoot is Root for programs that aren't tests. It is the folder with the project's go.mod, from the folder that the
// program was started in upwards.
func FindRoot() (string, error) {
	for folder := startFolder; ; folder = filepath.Dir(folder) {
		content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err == nil && modfile.ModulePath(content) == module {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("neither %s nor a folder above it has the go.mod of %s: start the program in a checkout", startFolder, module)
		}
	}
}

// startFolder is the folder that the program was started in: tests change theirs.
var startFolder, _ = os.Getwd()

// module is the path of the project's module.
const module = "github.com/clusterctl-release/clusterctl-release"

// Tool returns the path of a tool, e.g. "clusterctl", and builds it if this version is not in the
// cache yet.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	path, err := FindTool(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// FindTool is Tool for programs that aren't tests.
func FindTool(ctx context.Context, name string) (string, error) {
	root, err := FindRoot()
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "tools", "tool"), name)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the pinned tool %s: %w\n%s", name, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// Cache returns the folder in which hack/tools/tool keeps its builds.
func Cache() (string, error) {
	if dir := os.Getenv("CLUSTERCTL_RELEASE_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "clusterctl-release"), err
}

// Corpus returns the folder with real providers' trees and releases, which is not a part of the
// project: CORPUS_DIR, or shared/corpus next to the checkout. Without it the test is skipped, also in CI, which has no way to get
// it; where CORPUS_DIR names a folder that isn't there the test fails.
func Corpus(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("CORPUS_DIR")
	named := dir != ""
	if !named {
		dir = filepath.Join(Root(tb), "..", "shared", "corpus")
	}
	if _, err := os.Stat(dir); err != nil {
		if named {
			tb.Fatalf("CORPUS_DIR names no folder with real providers: %v", err)
		}
		tb.Skipf("NEEDS THE CORPUS of real providers in %s, or where CORPUS_DIR says: %v", dir, err)
	}
	return dir
}
