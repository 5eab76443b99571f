package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// UploadVolume implements hypervisor.Volumes.
func (h *host) UploadVolume(ctx context.Context, ref hypervisor.VolumeRef, content io.Reader, size int64) error {
	const doing = "uploading to the volume"
	volume, err := h.Volume(ctx, ref)
	if err != nil {
		return failure(doing, ref.String(), err)
	}
	length := max(size, 0) // 0 means any length
	if size < hypervisor.UnknownSize || volume.Format == hypervisor.FormatRaw && size > volume.CapacityBytes {
		// libvirt would accept it without an error, and write as much as fits.
		return &hypervisor.Error{Operation: doing, Object: ref.String(), Reason: hypervisor.ErrInvalid,
			Cause: fmt.Errorf("%d bytes don't fit into %d", size, volume.CapacityBytes)}
	}
	defer h.known.forget(ref)
	own, err := h.another(ctx)
	if err != nil {
		return failure(doing, ref.String(), err)
	}
	defer own.close()
	upload := &exactly{content: content, left: size, size: size, failed: make(chan error, 1), host: newWatchdog(h.limit, own.close)}
	defer upload.host.pause()

	done := make(chan error, 1)
	go func() {
		_, err := do(ctx, own, 0, func(client *golibvirt.Libvirt) (struct{}, error) {
			return struct{}{}, client.StorageVolUpload(volumeOf(ref), upload, 0, uint64(length), 0) //nolint:gosec // not negative
		})
		done <- err
	}()
	select {
	case err = <-done:
	case err := <-upload.failed:
		// The daemon's answer to an aborted upload doesn't matter, and may never arrive.
		return upload.failure(doing, ref, err)
	}
	select {
	case err := <-upload.failed:
		return upload.failure(doing, ref, err)
	default:
	}
	if err != nil {
		if upload.host.barked.Load() {
			err = fmt.Errorf("%w: the host accepted no data for %s", context.DeadlineExceeded, h.limit)
		}
		return failure(doing, ref.String(), err)
	}
	return nil
}

var (
	errTooLong  = errors.New("it is longer")
	errTooShort = errors.New("it is shorter")
)

// exactly reads content of an exact size, or any with hypervisor.UnknownSize. Other sizes and errors go to failed.
type exactly struct {
	content    io.Reader
	left, size int64
	failed     chan error
	host       *watchdog
}

// Read implements io.Reader. The watchdog runs between two calls, while the host takes the data, and not while content
// is read.
func (e *exactly) Read(out []byte) (int, error) {
	e.host.pause()
	defer e.host.resume()
	if e.left == 0 {
		var more [1]byte
		n, err := io.ReadFull(e.content, more[:])
		switch {
		case n > 0:
			return 0, e.fail(errTooLong)
		case !errors.Is(err, io.EOF):
			return 0, e.fail(err)
		}
		return 0, io.EOF
	}
	if e.size == hypervisor.UnknownSize {
		n, err := e.content.Read(out)
		if err != nil && !errors.Is(err, io.EOF) {
			err = e.fail(err)
		}
		return n, err
	}
	if int64(len(out)) > e.left {
		out = out[:e.left]
	}
	n, err := e.content.Read(out)
	e.left -= int64(n)
	switch {
	case err == nil, errors.Is(err, io.EOF) && e.left == 0:
		return n, nil
	case errors.Is(err, io.EOF):
		return n, e.fail(errTooShort)
	}
	return n, e.fail(err)
}

func (e *exactly) fail(err error) error {
	select {
	case e.failed <- err:
	default: // the first one counts
	}
	return err
}

// failure returns the error for content of another size or with a read error.
func (e *exactly) failure(doing string, ref hypervisor.VolumeRef, err error) error {
	out := &hypervisor.Error{Operation: doing, Object: ref.String(), Reason: hypervisor.ErrInvalid}
	switch {
	case errors.Is(err, errTooLong):
		out.Cause = fmt.Errorf("the content is longer than %d bytes", e.size)
	case errors.Is(err, errTooShort):
		out.Cause = fmt.Errorf("the content is shorter than %d bytes: %w", e.size, io.ErrUnexpectedEOF)
	default:
		out.Reason, out.Cause = hypervisor.ErrOther, fmt.Errorf("reading the content to upload: %w", err)
	}
	return out
}

// watchdog calls bark if it isn't paused for the limit.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	barked atomic.Bool
}

func newWatchdog(limit time.Duration, bark func()) *watchdog {
	w := &watchdog{limit: limit}
	w.timer = time.AfterFunc(limit, func() {
		w.barked.Store(true)
		bark()
	})
	return w
}

func (w *watchdog) pause() { w.timer.Stop() }

func (w *watchdog) resume() {
	if !w.barked.Load() {
		w.timer.Reset(w.limit)
	}
}
