// Package pinned gives tests the programs that they hold this project against: each is built from
// the exactly pinned module in its folder under hack/tools, once for a version, by the same script
// that the Makefile uses.
package pinned

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Root returns the project's root folder.
func Root(tb testing.TB) string {
	tb.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		tb.Fatal("the test binary does not know where its sources are")
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Tool returns the path of a tool, e.g. "clusterctl", and builds it if this version is not in the
// cache yet.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(tb.Context(), filepath.Join(Root(tb), "hack", "tools", "tool"), name)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("building the pinned tool %s: %v\n%s", name, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// Corpus returns the folder with real providers' trees and releases, which is not a part of the
// project: CORPUS_DIR, or shared/corpus beside the checkout. Without it the test is skipped.
func Corpus(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("CORPUS_DIR")
	if dir == "" {
		dir = filepath.Join(Root(tb), "..", "shared", "corpus")
	}
	if _, err := os.Stat(dir); err != nil {
		tb.Skipf("NEEDS THE CORPUS of real providers in %s, or where CORPUS_DIR says: %v", dir, err)
	}
	return dir
}
