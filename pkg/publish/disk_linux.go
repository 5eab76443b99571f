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
	// An unsupported file system returns EINVAL, an unsupported kernel ENOSYS.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}
