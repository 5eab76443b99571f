package images

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
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

// Error says how far the transfer is.
func (t *Transferring) Error() string {
	switch {
	case t.Queued:
		return fmt.Sprintf("the download of %s waits for others to end", t.URL)
	case t.TotalBytes == 0:
		return fmt.Sprintf("downloading %s", t.URL)
	}
	return fmt.Sprintf("downloading %s: %s of %s (%d %%)", t.URL, quantity(t.DoneBytes), quantity(t.TotalBytes), t.DoneBytes*100/t.TotalBytes)
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

// Error says why the last attempt failed. It doesn't say when or how often: the text is the same as
// long as the reason is, so that a condition which has it isn't written for nothing.
func (f *Failed) Error() string {
	return fmt.Sprintf("downloading %s failed and will be tried again: %v", f.URL, f.Err)
}

// Unwrap returns why the last attempt failed.
func (f *Failed) Unwrap() error { return f.Err }

// quantity writes a number of bytes for people.
func quantity(bytes int64) string {
	const mebi = 1 << 20
	if bytes > mebi {
		bytes -= bytes % mebi
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}
