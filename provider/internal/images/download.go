package images

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// maxRedirects is how many redirects are followed.
	maxRedirects = 10
	// connectTimeout is how long a server has to take a connection, and as long again to answer.
	connectTimeout = 30 * time.Second
	// receiveBytes is how much is read at once from a server.
	receiveBytes = 64 << 10
)

// newClient returns the client that images are downloaded with. It goes through the proxies that the
// environment names, unpacks nothing on the way, and has no limit for the whole: images are as large
// as they are. What must not last is silence (see received.Read).
func newClient(sources Sources) *http.Client {
	return &http.Client{
		Transport: discreet{sources: sources, Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			OnProxyConnectResponse: checkProxy,
			DialContext:            sources.dial,
			TLSHandshakeTimeout:    connectTimeout,
			ResponseHeaderTimeout:  connectTimeout,
			MaxResponseHeaderBytes: 1 << 20,
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			IdleConnTimeout:        connectTimeout,
		}},
		CheckRedirect: checkRedirect,
	}
}

func checkRedirect(next *http.Request, before []*http.Request) error {
	switch {
	case len(before) >= maxRedirects:
		return refused("more than %d redirects", maxRedirects)
	case next.URL.Scheme != "https" && next.URL.Scheme != "http":
		return refused("redirected to a scheme other than https and http")
	case next.URL.Scheme == "http" && before[len(before)-1].URL.Scheme == "https":
		return refused("redirected from https to http, at %s", shownURL(next.URL.String()))
	}
	// It would tell one server the query of the other's URL, which may be a credential.
	next.Header.Del("Referer")
	return nil
}

// shownURL is a URL as it may be shown: queries are often credentials.
func shownURL(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "the URL"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// download is an image on its way from a server. It counts and hashes what the server sends, and gives what is in it.
type download struct {
	ctx    context.Context
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	idle   time.Duration
	watch  *time.Timer
	// minRate is how many bytes a second it has to be over each time of idle that the server is waited for; waited
	// and received are how long it was in the present one, and how much came in it.
	minRate, received int64
	waited            time.Duration
	now               func() time.Time
	hash              hash.Hash
	want              string
	// size is what the server says that it sends, in bytes. done of them were read.
	size int64
	done *atomic.Int64
	// content is what is sent, decompressed if compressed says so, and contentBytes is how much of it was read.
	content      *bufio.Reader
	compressed   bool
	contentBytes int64
	// fits reports whether so much may be read.
	fits func(size int64) error
	// capacity is the size of the disk in the image. That of a compressed raw image is known when all was read.
	capacity int64
}

// open asks a server for an image, and looks at how it begins. done counts the bytes that are read.
func open(ctx context.Context, client *http.Client, wish Wish, limits Options, done *atomic.Int64) (*download, error) {
	sum, want, err := newHash(wish.Checksum)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	d := &download{ctx: ctx, cancel: cancel, idle: limits.IdleTimeout, minRate: limits.MinRate, now: time.Now, hash: sum, want: want, done: done}
	d.watch = time.AfterFunc(d.idle, func() { cancel(fmt.Errorf("the server was silent for %s", d.idle)) })
	d.fits = func(size int64) error { return checkSize(size, limits.MaxBytes) }
	if err := d.ask(ctx, client, wish); err != nil {
		err = d.plain(err)
		d.Close()
		return nil, err
	}
	return d, nil
}

// newHash returns the hash that a checksum is of, and what it must be.
func newHash(checksum string) (hash.Hash, string, error) {
	algorithm, sum, _ := strings.Cut(checksum, ":")
	switch {
	case algorithm == "sha256" && len(sum) == 2*sha256.Size:
		return sha256.New(), sum, nil
	case algorithm == "sha512" && len(sum) == 2*sha512.Size:
		return sha512.New(), sum, nil
	}
	return nil, "", fmt.Errorf("the checksum %q is neither sha256: nor sha512: with the sum in hexadecimal", checksum)
}

func (d *download) ask(ctx context.Context, client *http.Client, wish Wish) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, wish.URL, nil)
	if err != nil {
		return errors.New("the URL can't be read")
	}
	response, err := client.Do(request)
	if err != nil {
		return discreetly(err)
	}
	d.body, d.size = response.Body, response.ContentLength
	switch encoding := response.Header.Get("Content-Encoding"); {
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("the server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	case encoding != "" && encoding != "identity":
		return fmt.Errorf("%w: the server packs it (header Content-Encoding)", ErrNotAnImage)
	case d.size < 0:
		return errors.New("the server doesn't say how large it is (Content-Length), which has to be known before it can be stored")
	case d.size == 0:
		return fmt.Errorf("%w: it is empty", ErrNotAnImage)
	}
	if err := d.fits(d.size); err != nil {
		return err
	}
	d.content, d.compressed, err = decompress(bufio.NewReaderSize(received{d}, receiveBytes))
	if err != nil {
		return err
	}
	header, err := d.content.Peek(headerBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading how it begins: %w", err)
	}
	size := d.size
	if d.compressed {
		size = int64(len(header)) // so much is known of it
	}
	d.capacity, err = diskSize(wish.format(), header, size)
	return err
}

// checkSize refuses images that are too large.
func checkSize(size, maxBytes int64) error {
	if size <= maxBytes {
		return nil
	}
	unit := bytesize.UnitFor(size, maxBytes)
	return fmt.Errorf("%w: it has %s, and at most %s are allowed", ErrNotAnImage, unit.Up(size), unit.Down(maxBytes))
}

// Read implements io.Reader. It reads what is in the image, decompressed.
func (d *download) Read(out []byte) (int, error) {
	n, err := d.content.Read(out)
	d.contentBytes += int64(n)
	if tooLarge := d.fits(d.contentBytes); tooLarge != nil {
		return 0, tooLarge
	}
	return n, err
}

// length is how much can be read, or hypervisor.UnknownSize.
func (d *download) length() int64 {
	if d.compressed {
		return hypervisor.UnknownSize
	}
	return d.size
}

// received is what the server sends.
type received struct{ *download }

// Read implements io.Reader. Only while it waits for the server does the time of its silence count.
func (d received) Read(out []byte) (int, error) {
	began := d.now()
	d.watch.Reset(d.idle)
	n, err := d.body.Read(out)
	d.watch.Stop()
	if err == nil {
		err = d.tooSlow(n, d.now().Sub(began))
	}
	_, _ = d.hash.Write(out[:n]) // a hash returns no error
	d.done.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		err = &sourceError{d.plain(discreetly(err))}
	}
	return n, err
}

// tooSlow counts what was read in some time, and reports whether the server sends too little: one that sends a byte
// now and then is never silent, and would have a turn for ever.
func (d *download) tooSlow(read int, in time.Duration) error {
	d.received += int64(read)
	d.waited += in
	if d.waited < d.idle {
		return nil
	}
	if float64(d.received) < float64(d.minRate)*d.waited.Seconds() {
		return fmt.Errorf("the server has sent %s in %s, and must send %s a second",
			bytesize.UnitFor(d.received).Down(d.received), d.waited.Round(time.Millisecond), bytesize.UnitFor(d.minRate).Up(d.minRate))
	}
	d.received, d.waited = 0, 0
	return nil
}

// verify reports whether all that was read has the checksum. Nothing reads any more when it is called.
func (d *download) verify() error {
	if got := d.done.Load(); got != d.size {
		return fmt.Errorf("%d bytes of %d were read", got, d.size)
	}
	if got := hex.EncodeToString(d.hash.Sum(nil)); got != d.want {
		return fmt.Errorf("%w: what is served has %s", ErrChecksumMismatch, got)
	}
	return nil
}

// Close ends the download.
func (d *download) Close() {
	d.watch.Stop()
	d.cancel(nil)
	if d.body != nil {
		_ = d.body.Close()
	}
}

// plain is an error, or the reason for which the download was ended, if that is why.
func (d *download) plain(err error) error {
	if cause := context.Cause(d.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
