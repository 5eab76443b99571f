package publish

import (
	"io/fs"
	"syscall"
)

const readOnlyError = syscall.EROFS

// failing returns a disk whose operations fail: the one with this number, counted from zero, or
// from there on all.
func failing(number int, onwards bool, failure error) disk {
	counted := 0
	return disk{around: func(op operation, do func() error) error {
		now := counted
		counted++
		if now == number || onwards && now > number {
			if op.half != nil {
				_ = op.half() // a write that comes to nothing has often written something
			}
			return &fs.PathError{Op: op.name, Path: op.path, Err: failure}
		}
		return do()
	}}
}
