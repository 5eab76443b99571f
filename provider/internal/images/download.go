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
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	maxRedirects = 10
	// connectTimeout limits connecting to a server, and again waiting for its answer.
	connectTimeout = 30 * time.Second
	// receiveBytes is the size of a read from a server.
	receiveBytes = 64 << 10
)

// newClient returns the client for downloads. It uses the proxies of the environment, and has no limit for the whole
// download: see received.Read.
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
	// A Referer header would send the query of the first URL, which may be a credential, to the second server.
	next.Header.Del("Referer")
	return nil
}

// shownURL returns a URL without user and query, which are often credentials.
func shownURL(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "the URL"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// download is an image on its way from a server. It counts and hashes the bytes of the server, and decompresses them.
type download struct {
	ctx    context.Context
	body   io.ReadCloser
	cancel context.CancelCauseFunc
	idle   time.Duration
	watch  *time.Timer
	// minRate is the minimum of bytes per second over each idle time of waiting. waited and received are the time and
	// the bytes of the current period.
	minRate, received int64
	waited            time.Duration
	now               func() time.Time
	hash              hash.Hash
	want              string
	// size is the announced number of bytes, and done the number of those that were read.
	size int64
	done *atomic.Int64
	// content is the body, decompressed if compressed is true, and contentBytes the number of bytes read from it.
	content      *bufio.Reader
	compressed   bool
	contentBytes int64
	// fits returns an error if that many bytes are too many.
	fits func(size int64) error
	// capacity is the size of the disk. For a compressed raw image it is known at the end.
	capacity int64
}

// open requests an image and reads its header. done counts the bytes.
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

// newHash returns the hash of a checksum, and the expected sum.
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
		return fmt.Errorf("%w: the server compresses it (header Content-Encoding)", ErrNotAnImage)
	case d.size < 0:
		return errors.New("the server doesn't send the size (header Content-Length), which must be known before the image is stored")
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
		return fmt.Errorf("reading the first bytes: %w", err)
	}
	size := d.size
	if d.compressed {
		size = int64(len(header)) // a lower bound
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

// Read implements io.Reader with the decompressed content.
func (d *download) Read(out []byte) (int, error) {
	n, err := d.content.Read(out)
	d.contentBytes += int64(n)
	if tooLarge := d.fits(d.contentBytes); tooLarge != nil {
		return 0, tooLarge
	}
	return n, err
}

// length returns the number of bytes that can be read, or hypervisor.UnknownSize.
func (d *download) length() int64 {
	if d.compressed {
		return hypervisor.UnknownSize
	}
	return d.size
}

// received is the body of the server's answer.
type received struct{ *download }

// Read implements io.Reader. Only the time of waiting for the server counts as silence.
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

// tooSlow returns an error if the server sends too little. A server that sends a byte now and then would use a turn for
// ever.
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

// verify checks the size and the checksum after everything was read.
func (d *download) verify() error {
	if got := d.done.Load(); got != d.size {
		return fmt.Errorf("%d bytes of %d were read", got, d.size)
	}
	if got := hex.EncodeToString(d.hash.Sum(nil)); got != d.want {
		return fmt.Errorf("%w: the served file has %s", ErrChecksumMismatch, got)
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

// plain returns the reason for which the download was aborted, if any, or the error.
func (d *download) plain(err error) error {
	if cause := context.Cause(d.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// Errors of downloads are logged. More people can read logs than know the credentials in the URLs of images, redirects
// and proxies. Errors of net/http quote much of what servers and proxies send, which may repeat the credentials that
// they received.

// refused returns an error with a text that may be shown.
func refused(format string, values ...any) error {
	return &shown{text: fmt.Sprintf(format, values...)}
}

// discreet is a transport that refuses redirects with unreadable targets, which http.Client would quote, and sources
// that aren't allowed.
type discreet struct {
	*http.Transport
	sources Sources
}

func (t discreet) RoundTrip(request *http.Request) (*http.Response, error) {
	proxy, err := t.Proxy(request)
	if err != nil {
		return nil, err
	}
	if err := t.sources.checkRequest(request, proxy != nil); err != nil {
		return nil, err
	}
	if proxy != nil {
		request = request.WithContext(context.WithValue(request.Context(), proxiedKey{}, true))
	}
	response, err := t.Transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if _, err := response.Location(); response.StatusCode/100 == 3 && err != nil && !errors.Is(err, http.ErrNoLocation) {
		_ = response.Body.Close()
		return nil, refused("the server answers %d %s with a header Location that can't be read", response.StatusCode, http.StatusText(response.StatusCode))
	}
	return response, nil
}

// checkProxy refuses the answer of a proxy without its text (http.Transport.OnProxyConnectResponse).
func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return refused("the proxy answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}

// sent matches parts of an error's text that a server or proxy may have sent: quoted texts, and URLs' users and
// queries.
var sent = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[^\s/@]+@|[?#]\S+`)

// shown is an error with a text that may be shown, and the original error, if any.
type shown struct {
	text string
	err  error
}

func (s *shown) Error() string { return s.text }

// Unwrap returns the original error, whose text must not be shown.
func (s *shown) Unwrap() error { return s.err }

// discreetly returns an error of net/http with a text without credentials and URLs.
func discreetly(err error) error {
	var own *shown
	if errors.As(err, &own) {
		return own
	}
	var ofURL *url.Error
	for errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var ofHeader textproto.ProtocolError // without quotes
	if errors.As(err, &ofHeader) {
		return &shown{text: "the answer has a header that can't be read", err: err}
	}
	var ofNetwork *net.OpError
	if errors.As(err, &ofNetwork) && ofNetwork.Source != nil {
		// Its text includes the local port, which differs each time.
		err = fmt.Errorf("%s: %w", ofNetwork.Op, ofNetwork.Err)
	}
	return &shown{text: sent.ReplaceAllString(err.Error(), "..."), err: err}
}
