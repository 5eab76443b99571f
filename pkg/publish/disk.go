package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
)

// The modes of published files and folders, whatever the process's umask.
const (
	folderMode = 0o755
	fileMode   = 0o644
)

// disk makes every system call of this package that changes the disk, one operation each. Its zero value uses the
// system's disk.
type disk struct {
	// around runs an operation; nil runs it directly. Tests kill the process or fail here.
	around func(op operation, do func() error) error
}

// operation is one call that changes the disk.
type operation struct {
	// name is the name of the operation, e.g. "rename".
	name string
	// path is its target.
	path string
	// half does only the first half; nil for an operation that can't be split.
	half func() error
}

func (d disk) run(name, path string, do func() error) error {
	if d.around == nil {
		return do()
	}
	return d.around(operation{name: name, path: path}, do)
}

// mkdir creates a folder with exactly this mode.
func (d disk) mkdir(path string, mode fs.FileMode) error {
	err := d.run("mkdir", path, func() error { return os.Mkdir(path, mode) })
	if err != nil {
		return err
	}
	err = d.run("chmod", path, func() error { return os.Chmod(path, mode) })
	if err != nil {
		_ = d.remove(path) // the first error is the one to report
	}
	return err
}

// writeFile creates a file that must not exist yet, with exactly this mode, and syncs it.
func (d disk) writeFile(path string, data []byte, mode fs.FileMode) error {
	var f *os.File
	err := d.run("create", path, func() (err error) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the caller chose the path
		return err
	})
	if err != nil {
		return err
	}
	err = d.write(f, data)
	if err == nil {
		err = d.run("chmod", path, func() error { return f.Chmod(mode) })
	}
	if err == nil {
		err = d.run("fsync", path, f.Sync)
	}
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return err
	}
	return d.run("close", path, f.Close)
}

// write appends to an open file.
func (d disk) write(f *os.File, data []byte) error {
	part := func(data []byte) func() error {
		return func() error {
			_, err := f.Write(data)
			return err
		}
	}
	if d.around == nil {
		return part(data)()
	}
	return d.around(operation{name: "write", path: f.Name(), half: part(data[:len(data)/2])}, part(data))
}

// tryLock takes the lock of a file, which it creates if necessary. It returns false if another process has the lock.
// The kernel releases the lock when the process ends, in any way. A file that another user left behind can be locked as
// long as it is readable.
func (d disk) tryLock(path string) (l *flock.Flock, locked bool, err error) {
	l = flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE|noFollow), flock.SetPermissions(fileMode))
	err = d.run("create", path, func() error {
		locked, err = l.TryLock()
		return err
	})
	if errors.Is(err, fs.ErrPermission) {
		readable := flock.New(path, flock.SetFlag(os.O_RDONLY|noFollow))
		if locked, readErr := readable.TryLock(); readErr == nil {
			return readable, locked, nil
		}
	}
	return l, locked, err
}

// openLocked opens the file of a lock that this process has, and empties it.
func (d disk) openLocked(path string) (f *os.File, err error) {
	err = d.run("open", path, func() error {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|noFollow, 0) //nolint:gosec // in the folder that the user chose
		return err
	})
	return f, err
}

// rename moves a file or folder; it replaces a file.
func (d disk) rename(from, to string) error {
	return d.run("rename", to, func() error { return os.Rename(from, to) })
}

// exchange swaps two folders in one step. The error is errors.ErrUnsupported if the system or the file system does not
// support it.
func (d disk) exchange(a, b string) error {
	return d.run("exchange", b, func() error { return renameExchange(a, b) })
}

func (d disk) remove(path string) error {
	return d.run("remove", path, func() error { return os.Remove(path) })
}

// removeTree removes the file or folder at a path, without following links. A missing path is no error.
func (d disk) removeTree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := d.removeTree(path + string(os.PathSeparator) + entry.Name()); err != nil {
				return err
			}
		}
	}
	return d.remove(path)
}

// syncFolder makes changes of a folder's entries durable.
func (d disk) syncFolder(path string) error {
	return d.run("fsync", path, func() error {
		f, err := os.Open(path) //nolint:gosec // a folder that was just written to
		if err != nil {
			return err
		}
		err = f.Sync()
		// Some network file systems can't sync folders.
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		return errors.Join(err, f.Close())
	})
}

// WriteFile writes one file of the user, such as a release file, atomically: the old content stays until the new bytes
// are on the disk. An existing file keeps its mode, and a symbolic link still points at it.
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
			return fmt.Errorf("writing %s: it exists and isn't a plain file", path)
		}
		target, mode = resolved, info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if _, err := os.Stat(filepath.Dir(target)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w: make the folder %s first", path, fs.ErrNotExist, filepath.Dir(target))
	}
	// Each process has one name. A file with that name was left by a killed process with the same number.
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
		return withAdvice(fmt.Errorf("writing %s: %w", path, err))
	}
	if err := d.syncFolder(filepath.Dir(target)); err != nil {
		return withAdvice(fmt.Errorf("writing %s: %w", path, err))
	}
	return nil
}
