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

// lockFile is the file at a repository's root that the lock is taken on. It is there only while a
// publisher is at work, or after one was killed; what counts is the lock, not the file.
const lockFile = ".clusterctl-release.lock"

// How often a lock that is taken is tried again, and how often the wait is told of.
const (
	lockPoll = 50 * time.Millisecond
	lockTell = 10 * time.Second
)

type lock struct {
	disk disk
	file *flock.Flock
	// made are the folders that were made to take it: the root and those above it.
	made []string
}

// acquire takes the lock of the folder, whose root it makes if need be. The error is *LockedError
// where another publisher has it for longer than the time that one waits.
func (f *folder) acquire(ctx context.Context) (*lock, error) {
	start := time.Now()
	told := time.Time{}
	for {
		l, err := f.tryAcquire()
		if err != nil || l != nil {
			return l, err
		}
		holder := readHolder(filepath.Join(f.root, lockFile))
		if waited := time.Since(start); waited >= f.lockTimeout {
			return nil, &LockedError{Place: f.root, Holder: holder, Waited: waited}
		}
		if time.Since(told) >= lockTell {
			told = time.Now()
			f.tell(fmt.Sprintf("waiting: %s is being written to by %s", f.root, holder))
		}
		if err := (transport.Network{}).Wait(ctx, lockPoll); err != nil {
			return nil, fmt.Errorf("waiting for the lock of %s: %w", f.root, err)
		}
	}
}

// tryAcquire takes the lock if it is free; it returns nil if it is not.
func (f *folder) tryAcquire() (*lock, error) {
	made, err := f.makeRoot()
	l := &lock{disk: f.disk, made: made}
	if err != nil {
		l.removeMade()
		return nil, err
	}
	path := filepath.Join(f.root, lockFile)
	var locked bool
	l.file, locked, err = f.disk.tryLock(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the publisher before took the root away again, which it had made
	}
	if err != nil {
		l.removeMade()
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

// current says whether the locked file is still the one at the path: who had the lock before has
// removed its file.
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

// sign writes into the lock file who holds it, for those who wait. It leaves a file of another user as
// it is: the lock holds, and only the message of those who wait is poorer. On Windows nobody reads a
// file that is locked.
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

// readHolder returns who wrote the lock file; the zero Holder where that can't be told.
func readHolder(path string) Holder {
	var h Holder
	text, err := os.ReadFile(path) //nolint:gosec // in the folder that the user chose
	if err != nil || json.Unmarshal(text, &h) != nil {
		return Holder{}
	}
	return h
}

// release removes the lock file and lets go of the lock, in this order: nobody takes the lock of a
// file that is gone. Windows removes no file that is open, so that it is removed after the lock there,
// unless somebody else has it by then. Where nothing was published, the folders that were made for it
// go as well.
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
		l.removeMade()
	}
	_ = l.file.Unlock() // nothing is buffered; closing can't lose anything
	return err
}

// removeMade removes the folders that were made, as far as they are empty.
func (l *lock) removeMade() {
	for _, folder := range slices.Backward(l.made) {
		if l.disk.remove(folder) != nil {
			return // somebody else uses it
		}
	}
}
