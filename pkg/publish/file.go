package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile writes one file of the user's, such as a release file, as a whole or not at all: what
// was there before stays until the new bytes are on the disk. A file that is there keeps its mode,
// and a symbolic link goes on pointing at it.
func WriteFile(path string, data []byte) error {
	return writeOneFile(disk{}, path, data)
}

func writeOneFile(d disk, path string, data []byte) error {
	mode := fs.FileMode(fileMode)
	target := path
	switch resolved, err := filepath.EvalSymlinks(path); {
	case err == nil:
		info, err := os.Stat(resolved)
		if err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("writing %s: it is there and is no plain file", path)
		}
		target, mode = resolved, info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if _, err := os.Stat(filepath.Dir(target)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w: make the folder %s first", path, fs.ErrNotExist, filepath.Dir(target))
	}
	// One name a process. What is there under it was left by a killed one, which had the same number.
	staged := filepath.Join(filepath.Dir(target), fmt.Sprintf(".%s.%d", filepath.Base(target), os.Getpid()))
	err := d.removeTree(staged)
	if err == nil {
		err = d.writeFile(staged, data, mode)
	}
	if err == nil {
		err = d.rename(staged, target)
	}
	if err != nil {
		_ = d.removeTree(staged) // the first error is the one to report
		return advise(fmt.Errorf("writing %s: %w", path, err))
	}
	if err := d.syncFolder(filepath.Dir(target)); err != nil {
		return advise(fmt.Errorf("writing %s: %w", path, err))
	}
	return nil
}
