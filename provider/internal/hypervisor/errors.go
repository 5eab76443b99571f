package hypervisor

import (
	"errors"
	"strings"
)

// The reasons of errors, for errors.Is. Each error of a Hypervisor has exactly one of them.
var (
	// ErrNotFound means that the object doesn't exist.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists means that a name or UUID is taken.
	ErrAlreadyExists = errors.New("already exists")
	// ErrUnreachable means that the host couldn't be reached, or that the connection was lost.
	ErrUnreachable = errors.New("host can't be reached")
	// ErrTimeout means that the host didn't answer in time, or that the caller gave up.
	ErrTimeout = errors.New("no answer in time")
	// ErrNoSpace means that a storage pool or the memory of the host is full.
	ErrNoSpace = errors.New("no room on the host")
	// ErrBusy means that the object is in use or in a state that doesn't allow it now.
	ErrBusy = errors.New("in use")
	// ErrDenied means that the host refuses the credentials, or the caller lacks a right there.
	ErrDenied = errors.New("not allowed")
	// ErrInvalid means that the request is invalid: a retry won't help.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported means that the host or the domain can't do this.
	ErrUnsupported = errors.New("not supported")
	// ErrOther is everything else.
	ErrOther = errors.New("failed")
)

// Error is a failed call.
type Error struct {
	// Operation in words, for example "defining the domain".
	Operation string
	// Object of the operation, for example a UUID or pool/volume, or empty for the host.
	Object string
	// Reason is one of this package's Err variables.
	Reason error
	// Cause has the details, or is nil. Never a type of a libvirt library.
	Cause error
}

// Error returns what was being done, to which object, and why it failed. A reason that the cause includes isn't
// repeated.
func (e *Error) Error() string {
	doing := e.Operation
	if e.Object != "" {
		doing += " " + e.Object
	}
	if e.Cause == nil {
		return doing + ": " + e.Reason.Error()
	}
	cause := e.Cause.Error()
	switch reason := e.Reason.Error() + ": "; {
	case strings.HasPrefix(cause, doing+": "):
		return cause
	case errors.Is(e.Cause, e.Reason) || strings.HasPrefix(cause, reason):
		return doing + ": " + cause
	default:
		return doing + ": " + reason + cause
	}
}

// Unwrap lets errors.Is find the reason, and the end of a context in the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// Uncertain reports whether a failed call may have succeeded, because only its answer is missing.
func Uncertain(err error) bool {
	return errors.Is(err, ErrTimeout) || errors.Is(err, ErrUnreachable)
}

// IgnoreNotFound returns nil for errors with the reason ErrNotFound, and other errors as they are.
func IgnoreNotFound(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
