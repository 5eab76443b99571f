//go:build !unix

package publish

import (
	"errors"
	"os"
)

const noFollow = 0

// tryLock is for systems with flock only.
func tryLock(f *os.File) (bool, error) {
	return false, &os.PathError{Op: "flock", Path: f.Name(), Err: errors.ErrUnsupported}
}
