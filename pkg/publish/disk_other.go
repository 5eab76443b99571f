//go:build !linux

package publish

import (
	"errors"
	"os"
)

// renameExchange is for Linux only.
func renameExchange(a, b string) error {
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: errors.ErrUnsupported}
}
