package publish

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	kept, linked := filepath.Join(dir, "kept"), filepath.Join(dir, "linked")
	write(t, kept, "old")
	if err := os.Chmod(kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept", linked); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "fresh"), kept, linked} {
		if err := WriteFile(path, []byte("by "+filepath.Base(path))); err != nil {
			t.Error(err)
		}
	}
	found := tree(t, dir)
	if found["fresh"] != "-rw-r--r-- by fresh" || found["kept"] != "-rw------- by linked" || !strings.HasPrefix(found["linked"], "L") {
		t.Errorf("the folder has %q", found)
	}
	if err := WriteFile(dir, nil); err == nil || !strings.Contains(err.Error(), "isn't a plain file") {
		t.Errorf("WriteFile to the path of a folder: %v", err)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "file"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("WriteFile in a missing folder: %v", err)
	}
}

// TestWriteFileFails makes each change of the disk fail. The folder then has only the old or the
// new file.
func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for number := 0; ; number++ {
		write(t, path, "old")
		// The file of a killed process that had the same process ID.
		write(t, filepath.Join(dir, fmt.Sprintf(".file.%d", os.Getpid())), "half")
		err := writeOneFile(failing(number, false, syscall.ENOSPC), path, []byte("new"))
		found := tree(t, dir)
		if err == nil {
			if found["file"] != "-rw-r--r-- new" || number < 6 {
				t.Errorf("after %d failures: %q", number, found)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("operation %d: %v", number, err)
		}
		if names := slices.Sorted(maps.Keys(found)); len(names) != 2 || found["file"] != "-rw-r--r-- old" && found["file"] != "-rw-r--r-- new" {
			t.Errorf("operation %d left %q", number, found)
		}
	}
}
