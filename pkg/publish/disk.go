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

// The modes of everything that is published, whatever the process's umask.
const (
	folderMode = 0o755
	fileMode   = 0o644
)

// disk does every system call of this package that changes the disk, one operation each. Its zero
// value works on the system's disk.
type disk struct {
	// around runs an operation; nil just does it. Tests kill the process or fail here.
	around func(op operation, do func() error) error
}

// operation is one call that changes the disk.
type operation struct {
	// name is what is done, e.g. "rename".
	name string
	// path is what it is done to.
	path string
	// half does only the first half; nil for what can't be cut in two.
	half func() error
}

func (d disk) run(name, path string, do func() error) error {
	if d.around == nil {
		return do()
	}
	return d.around(operation{name: name, path: path}, do)
}

// mkdir makes a folder with exactly this mode.
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

// writeFile makes a file that must not exist yet, with exactly this mode, and syncs it.
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

// tryLock takes the lock of a file, which it makes if need be, and says false where another process has
// it. The kernel lets go of it when the process ends, however that happens. A file that another user
// left behind can be locked as well as long as it can be read.
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

// openLocked opens the file of a lock that is held, and empties it.
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

// exchange swaps two folders in one step. The error is errors.ErrUnsupported where the system or
// the file system has no such call.
func (d disk) exchange(a, b string) error {
	return d.run("exchange", b, func() error { return renameExchange(a, b) })
}

func (d disk) remove(path string) error {
	return d.run("remove", path, func() error { return os.Remove(path) })
}

// removeTree removes whatever is at a path, and does not follow links. Nothing there is no error.
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

// syncFolder makes what was made, renamed or removed in a folder last through a power cut.
func (d disk) syncFolder(path string) error {
	return d.run("fsync", path, func() error {
		f, err := os.Open(path) //nolint:gosec // a folder that was just written to
		if err != nil {
			return err
		}
		err = f.Sync()
		// Some network file systems have no sync for folders.
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			err = nil
		}
		return errors.Join(err, f.Close())
	})
}

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
			return fmt.Errorf("writing %s: it is there and isn't a plain file", path)
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
		return withAdvice(fmt.Errorf("writing %s: %w", path, err))
	}
	if err := d.syncFolder(filepath.Dir(target)); err != nil {
		return withAdvice(fmt.Errorf("writing %s: %w", path, err))
	}
	return nil
}
