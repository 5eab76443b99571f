// Package images brings the images that machines start from to the hosts, outside of any reconcile.
//
// What an image is made of on a host, in its storage pool for images:
//
//   - the content: a volume that one attempt of one manager has made and filled, with a name that no
//     other attempt has;
//   - the marker: an overlay of the content, with a name that is derived from the checksum. It is made
//     when the content is there and has the checksum, and making it is atomic. What it is an overlay
//     of is the image.
//
// A content without a marker is half an image. Nobody writes to a content but who made it, so that two
// managers at once (one that doesn't know yet that it is no longer the leader, or two that share
// hosts) can't spoil each other's, and whoever is second finds the marker there. The pool must be one
// of files, as overlays need it anyway.
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
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// namePrefix begins the names of all volumes of this package.
const namePrefix = "caplv-image-"

// namespaceBytes is how much of the hash of a namespace's UID is in the names of its images.
const namespaceBytes = 16

// Image is an image that is on a host.
type Image struct {
	// VolumeRef names the volume with the image's content.
	hypervisor.VolumeRef
	// Path of the volume on its host.
	Path string
	// Format of the content, as the machine's spec has it: what is below an overlay is never guessed.
	Format hypervisor.VolumeFormat
	// CapacityBytes is the size of the disk that is in the image.
	CapacityBytes int64
}

// Wish is an image that a host shall have.
type Wish struct {
	// Host is the name of the LibvirtHost, and Pool that of its storage pool for images.
	Host, Pool string
	// URL, Checksum and Format are those of the machine's spec.image.
	URL, Checksum string
	Format        infrav1.ImageFormat
	// Access is set for an image that not everybody may have.
	Access *Access
}

// key tells transfers apart. The URL is in it: one that doesn't work must not keep machines waiting
// that have another one for the same image.
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

// marker is the name of the marker. The format is in it, because the same bytes make another disk in
// another format; and who may have the image, because others may know its URL and checksum.
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

// isContent says whether a volume has the name of an attempt's content.
func (w Wish) isContent(name string) bool {
	return strings.HasPrefix(name, w.marker()+".")
}

// errMissing means that the image isn't on the host; errBroken, which is one, that there is a marker
// of nothing.
var (
	errMissing = errors.New("the image isn't there")
	errBroken  = fmt.Errorf("%w, and its marker is", errMissing)
)

// look looks for an image on its host. The error is errMissing when it isn't there.
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
		return Image{}, errBroken // somebody has deleted it
	}
	if err != nil {
		return Image{}, fmt.Errorf("looking for the image: %w", err)
	}
	if volume.Path != marker.BackingPath {
		return Image{}, errBroken
	}
	return Image{VolumeRef: content, Path: volume.Path, Format: wish.format(), CapacityBytes: marker.CapacityBytes}, nil
}
