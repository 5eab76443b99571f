package world

import (
	"io"
	"net/http"
	"path"
	"sync"
)

// LateWatches delays the events of a manager's watches, so that its cache is old, as on a busy machine. Reads and
// writes aren't delayed. The zero value delays nothing.
type LateWatches struct {
	lock   sync.Mutex
	delays map[string]chan struct{}
}

// Hold delays all events of a resource, such as "machines", until Release.
func (l *LateWatches) Hold(resource string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.delays == nil {
		l.delays = map[string]chan struct{}{}
	}
	if l.delays[resource] == nil {
		l.delays[resource] = make(chan struct{})
	}
}

// Release delivers all delayed events.
func (l *LateWatches) Release() {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, delay := range l.delays {
		close(delay)
	}
	clear(l.delays)
}

// Wrap returns a transport that delays the watches of the next one.
func (l *LateWatches) Wrap(next http.RoundTripper) http.RoundTripper { return lateTransport{l, next} }

type lateTransport struct {
	*LateWatches
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (l lateTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "" {
		response.Body = &lateBody{ReadCloser: response.Body, LateWatches: l.LateWatches, resource: path.Base(request.URL.Path), closed: make(chan struct{})}
	}
	return response, err
}

// lateBody is the body of a watch.
type lateBody struct {
	io.ReadCloser
	*LateWatches
	resource string
	closing  sync.Once
	closed   chan struct{}
}

// Read implements io.Reader. It waits after reading, because a watch usually is inside a read.
func (b *lateBody) Read(content []byte) (int, error) {
	n, err := b.ReadCloser.Read(content)
	b.lock.Lock()
	delay := b.delays[b.resource]
	b.lock.Unlock()
	if delay != nil {
		select {
		case <-delay:
		case <-b.closed:
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *lateBody) Close() error {
	b.closing.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
