package publish

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameExchange swaps two paths in one step.
func renameExchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if err == nil {
		return nil
	}
	// A file system that can't says so with EINVAL, a kernel with ENOSYS.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}
