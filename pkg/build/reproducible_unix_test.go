//go:build unix

package build_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
)

// TestReproducibleFiles builds copies of a tree in different folders, with different times and modes, and with
// different umasks: the bytes and modes of the written files are the same.
func TestReproducibleFiles(t *testing.T) {
	before := syscall.Umask(0o022)
	defer syscall.Umask(before)
	var first map[string]string
	for _, tc := range []struct {
		umask int
		mode  fs.FileMode
		mtime time.Time
	}{
		{0o022, 0o644, time.Unix(0, 0)},
		{0o077, 0o600, time.Unix(1<<31, 0)},
		{0o000, 0o777, time.Now()},
	} {
		syscall.Umask(0o022)
		dir := treetest.Demo(t)
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !entry.IsDir() {
				if err := os.Chmod(path, tc.mode); err != nil {
					return err
				}
			}
			return os.Chtimes(path, tc.mtime, tc.mtime)
		})
		if err != nil {
			t.Fatal(err)
		}
		syscall.Umask(tc.umask)
		result, err := buildTree(t, dir, build.Options{})
		if err != nil {
			t.Fatal(err)
		}
		output := filepath.Join(t.TempDir(), "out", "release")
		if err := publish.WriteFolder(output, result.Releases[0]); err != nil {
			t.Fatal(err)
		}
		written := contents(t, output)
		if first == nil {
			first = written
		}
		if !reflect.DeepEqual(first, written) {
			t.Errorf("umask %o: files =\n%v\nwant\n%v", tc.umask, written, first)
		}
	}
	for name, content := range first {
		want := "-rw-r--r-- "
		if content[0] == 'd' {
			want = "drwxr-xr-x "
		}
		if !strings.HasPrefix(content, want) {
			t.Errorf("mode of %s = %s, want %s", name, content[:10], want)
		}
	}
}
