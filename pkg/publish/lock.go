package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
)

// lockFile is the file at a repository's root on which the lock is taken. It exists only while a publisher is active,
// or after one was killed; only the lock counts, not the file.
const lockFile = ".clusterctl-release.lock"

// The intervals for retrying a lock, and for reporting the wait.
const (
	lockPoll = 50 * time.Millisecond
	lockTell = 10 * time.Second
)

type lock struct {
	disk disk
	file *flock.Flock
	// made are the folders that were created to take the lock: the root and those above it.
	made []string
}

// acquire takes the lock of the folder, whose root it creates if necessary. The error is *LockedError if another
// publisher keeps the lock longer than the time limit.
func (f *folder) acquire(ctx context.Context) (*lock, error) {
	start := time.Now()
	told := time.Time{}
	for {
		l, err := f.tryAcquire()
		if err != nil || l != nil {
			return l, err
		}
		holder := readHolder(filepath.Join(f.root, lockFile))
		if waited := time.Since(start); waited >= f.opts.LockTimeout {
			return nil, &LockedError{Place: f.root, Holder: holder, Waited: waited}
		}
		if time.Since(told) >= lockTell {
			told = time.Now()
			f.opts.tell(fmt.Sprintf("waiting: %s is being written to by %s", f.root, holder))
		}
		if err := (transport.Network{}).Wait(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("waiting for the lock of %s: %w", f.root, err)
		}
	}
}

// tryAcquire takes the lock if it is free; it returns nil if it is not.
func (f *folder) tryAcquire() (*lock, error) {
	made, err := f.makeRoot()
	l := &lock{disk: f.opts.disk, made: made}
	if err != nil {
		l.removeCreated()
		return nil, err
	}
	path := filepath.Join(f.root, lockFile)
	var locked bool
	l.file, locked, err = f.opts.disk.tryLock(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the previous publisher removed the root that it had created
	}
	if err != nil {
		l.removeCreated()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if locked {
		locked, err = l.current(path)
	}
	if err != nil || !locked {
		_ = l.file.Unlock()
		return nil, err
	}
	if err := l.sign(); err != nil {
		return nil, joinErrors(fmt.Errorf("writing the lock file: %w", err), l.release(false))
	}
	return l, nil
}

// current reports whether the locked file is still the one at the path: the previous holder of the lock has removed its
// file.
func (l *lock) current(path string) (bool, error) {
	locked, err := l.file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(locked, there), err
}

// sign writes the holder into the lock file, for those who wait. It leaves a file of another user unchanged: the lock
// is valid, and only the message of those who wait has less detail. On Windows a locked file can't be read.
func (l *lock) sign() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	file, err := l.disk.openLocked(l.file.Path())
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	text, err := json.Marshal(Holder{PID: os.Getpid(), Host: host, Since: time.Now().UTC()})
	if err == nil {
		err = l.disk.write(file, append(text, '\n'))
	}
	return joinErrors(err, file.Close())
}

// readHolder returns the holder in the lock file; the zero Holder if it can't be read.
func readHolder(path string) Holder {
	var h Holder
	text, err := os.ReadFile(path) //nolint:gosec // in the folder that the user chose
	if err != nil || json.Unmarshal(text, &h) != nil {
		return Holder{}
	}
	return h
}

// release removes the lock file and then releases the lock, so that no process takes the lock of a removed file.
// Windows does not remove an open file, so there the file is removed after the lock is released, unless another process
// has it by then. If nothing was published, the created folders are removed as well.
func (l *lock) release(published bool) error {
	if runtime.GOOS == "windows" {
		_ = l.file.Unlock()
	}
	err := l.disk.remove(l.file.Path())
	switch {
	case runtime.GOOS == "windows":
		err = nil
	case err != nil:
		err = fmt.Errorf("removing the lock file: %w", err)
	}
	if !published {
		l.removeCreated()
	}
	_ = l.file.Unlock() // nothing is buffered; closing can't lose anything
	return err
}

// removeCreated removes the created folders as far as they are empty.
func (l *lock) removeCreated() {
	for _, folder := range slices.Backward(l.made) {
		if l.disk.remove(folder) != nil {
			return // another process uses it
		}
	}
}
