package images

import (
	"errors"
	"fmt"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// ErrChecksumMismatch means that what the URL serves doesn't have the checksum.
var ErrChecksumMismatch = errors.New("it doesn't have the checksum")

// ErrNotAnImage means that what the URL serves can't be used as an image of the format.
var ErrNotAnImage = errors.New("it isn't an image that can be used")

// Transferring says that an image is on its way to a host.
type Transferring struct {
	// URL that it comes from, without what may be a credential.
	URL string
	// Queued says that it waits for other transfers to end.
	Queued bool
	// DoneBytes of TotalBytes are on the host. Both are 0 until the server has answered.
	DoneBytes, TotalBytes int64
}

// shownBytes is how much is on the host before it is said how far a transfer is: what isn't an image is smaller, and
// its size isn't for whoever asked for it.
const shownBytes = 16 << 20

// Error says how far the transfer is.
func (t *Transferring) Error() string {
	switch {
	case t.Queued:
		return fmt.Sprintf("the download of %s is queued: a namespace can have at most half of the concurrent downloads", t.URL)
	case t.DoneBytes < shownBytes || t.TotalBytes == 0:
		return fmt.Sprintf("downloading %s", t.URL)
	}
	unit := bytesize.UnitFor(t.DoneBytes, t.TotalBytes)
	return fmt.Sprintf("downloading %s: %s of %s (%d %%)", t.URL, unit.Down(t.DoneBytes), unit.Up(t.TotalBytes), t.DoneBytes*100/t.TotalBytes)
}

// Failed says that a transfer has failed, and will be tried again as long as somebody wants it.
type Failed struct {
	// URL that the image comes from, without what may be a credential.
	URL string
	// Attempts is how often it was tried.
	Attempts int
	// Retry is when it will be tried again.
	Retry time.Time
	// Err is why the last attempt failed: ErrChecksumMismatch, ErrNotAnImage, an error of package
	// hypervisor, or one of the network.
	Err error
}

// Error says why the last attempt failed, as far as it is for everybody. Whoever chooses a URL doesn't hear what is
// behind it, as the manager's network isn't theirs: neither what was served nor how a server failed. It doesn't say when
// or how often either: the text is the same as long as the reason is, so that a condition which has it isn't written
// for nothing.
func (f *Failed) Error() string {
	why := "the server can't be reached, or doesn't serve a usable image with the checksum. See the manager's log"
	var ofHost *hypervisor.Error
	var ofSource *sourceError
	var ofAccess *accessError
	switch {
	case errors.As(f.Err, &ofAccess):
		why = ofAccess.Error()
	case errors.Is(f.Err, errNotAllowed):
		why = errNotAllowed.Error()
	case errors.As(f.Err, &ofHost) && !errors.As(f.Err, &ofSource):
		why = f.Err.Error()
	}
	return fmt.Sprintf("downloading %s failed and is retried: %s", f.URL, why)
}

// sourceError is why what is downloaded can't be read on, in the error of an upload.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// Unwrap returns why the last attempt failed.
func (f *Failed) Unwrap() error { return f.Err }
