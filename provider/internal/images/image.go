// Package images downloads images of machines to the hosts, outside of reconciles.
//
// An image on a host consists of two volumes in the storage pool for images:
//
//   - the content: a volume that one attempt of one manager has created and filled, with a unique name;
//   - the marker: an overlay of the content, with a name derived from the checksum. It is created atomically when the
//     content is complete and has the checksum. Its backing volume is the image.
//
// A content without a marker is an incomplete image. Only its creator writes to it, so that concurrent managers (a
// former leader, or two that share hosts) can't damage each other's images. The second one finds the marker. The pool
// must consist of files, which overlays need anyway.
package images

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// namePrefix is the prefix of the names of this package's volumes.
const namePrefix = "caplv-image-"

// namespaceBytes is the length of the hash of a namespace's UID in the names of its images.
const namespaceBytes = 16

// Image is an image on a host.
type Image struct {
	// VolumeRef names the volume with the image's content.
	hypervisor.VolumeRef
	// Path of the volume on its host.
	Path string
	// Format of the content, from the machine's spec. The format of a backing volume is never detected.
	Format hypervisor.VolumeFormat
	// CapacityBytes is the size of the disk in the image.
	CapacityBytes int64
}

// Wish is a request for an image on a host.
type Wish struct {
	// Host is the name of the LibvirtHost, and Pool that of its storage pool for images.
	Host, Pool string
	// URL, Checksum and Format are those of the machine's spec.image.
	URL, Checksum string
	Format        infrav1.ImageFormat
	// Access is set for an image with credentials.
	Access *Access
}

// key identifies a transfer. It includes the URL: a broken URL must not block machines with another URL for the same
// image.
type key struct{ host, pool, marker, url, secret string }

func (w Wish) key() key {
	k := key{host: w.Host, pool: w.Pool, marker: w.marker(), url: w.URL}
	if w.Access != nil {
		k.secret = w.Access.Secret
	}
	return k
}

func (w Wish) format() hypervisor.VolumeFormat {
	return hypervisor.VolumeFormat(cmp.Or(w.Format, infrav1.ImageFormatQCOW2))
}

// marker returns the name of the marker. It includes the format, because the same bytes are another disk in another
// format, and the namespace of an image with credentials, because others may know its URL and checksum.
func (w Wish) marker() string {
	name := namePrefix + strings.ReplaceAll(w.Checksum, ":", "-")
	if w.Access != nil {
		sum := sha256.Sum256([]byte(w.Access.Namespace))
		name += "-" + hex.EncodeToString(sum[:namespaceBytes])
	}
	return name + "." + string(w.format())
}

func (w Wish) markerRef() hypervisor.VolumeRef {
	return hypervisor.VolumeRef{Pool: w.Pool, Name: w.marker()}
}

// isContent reports whether a volume has the name of an attempt's content.
func (w Wish) isContent(name string) bool {
	return strings.HasPrefix(name, w.marker()+".")
}

// errMissing means that the image isn't on the host. errBroken is an errMissing with a marker that has no content.
var (
	errMissing = errors.New("the image isn't on the host")
	errBroken  = fmt.Errorf("%w, but its marker is", errMissing)
)

// look returns the image on its host, or errMissing.
func look(ctx context.Context, host hypervisor.Volumes, wish Wish) (Image, error) {
	marker, err := host.Volume(ctx, wish.markerRef())
	if errors.Is(err, hypervisor.ErrNotFound) {
		return Image{}, errMissing
	}
	if err != nil {
		return Image{}, fmt.Errorf("looking for the image: %w", err)
	}
	// A pool of files names volumes by their files.
	content := hypervisor.VolumeRef{Pool: wish.Pool, Name: path.Base(marker.BackingPath)}
	if marker.BackingPath == "" || !wish.isContent(content.Name) {
		return Image{}, errBroken
	}
	volume, err := host.Volume(ctx, content)
	if errors.Is(err, hypervisor.ErrNotFound) {
		return Image{}, errBroken // the content was deleted
	}
	if err != nil {
		return Image{}, fmt.Errorf("looking for the image: %w", err)
	}
	if volume.Path != marker.BackingPath {
		return Image{}, errBroken
	}
	return Image{VolumeRef: content, Path: volume.Path, Format: wish.format(), CapacityBytes: marker.CapacityBytes}, nil
}

// ErrChecksumMismatch means that the download doesn't have the checksum.
var ErrChecksumMismatch = errors.New("it doesn't have the checksum")

// ErrNotAnImage means that the download isn't a usable image of the format.
var ErrNotAnImage = errors.New("it isn't a usable image")

// Transferring says that an image is being downloaded.
type Transferring struct {
	// URL of the image without credentials.
	URL string
	// Queued says that the download waits for others.
	Queued bool
	// DoneBytes and TotalBytes are the progress. Both are 0 until the server has answered.
	DoneBytes, TotalBytes int64
}

// shownBytes is the minimum size in messages: the size of a smaller file, which isn't an image, isn't shown.
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

// Failed says that a transfer has failed and is retried.
type Failed struct {
	// URL of the image without credentials.
	URL string
	// Err is the error of the last attempt.
	Err error
}

// Error says why the last attempt failed, without details of servers: the author of a URL may not have access to the
// manager's network, and must not learn what is served there or how a server failed. The text doesn't have the time or
// the number of attempts, so that a condition with it changes only when the reason does.
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

// sourceError is an error of the source in the error of an upload.
type sourceError struct{ error }

func (e *sourceError) Unwrap() error { return e.error }

// Unwrap returns why the last attempt failed.
func (f *Failed) Unwrap() error { return f.Err }
