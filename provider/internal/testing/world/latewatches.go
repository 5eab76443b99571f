package world

import (
	"io"
	"net/http"
	"path"
	"sync"
)

// LateWatches holds back what a manager hears of changes, so that its cache is old, as that of a busy
// machine is. Reads and writes go through. The zero value holds nothing back.
type LateWatches struct {
	lock sync.Mutex
	held map[string]chan struct{}
}

// Hold lets nothing more be heard of a resource, such as "machines", until Release.
func (l *LateWatches) Hold(resource string) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	if l.held[resource] == nil {
		l.held[resource] = make(chan struct{})
	}
}

// Release lets everything be heard.
func (l *LateWatches) Release() {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, held := range l.held {
		close(held)
	}
	clear(l.held)
}

// Wrap puts itself before a way to the API server.
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

// lateBody is what a watch hears.
type lateBody struct {
	io.ReadCloser
	*LateWatches
	resource string
	closing  sync.Once
	closed   chan struct{}
}

// Read implements io.Reader. It waits after it has read, as a watch mostly is within a read.
func (b *lateBody) Read(content []byte) (int, error) {
	n, err := b.ReadCloser.Read(content)
	b.lock.Lock()
	held := b.held[b.resource]
	b.lock.Unlock()
	if held != nil {
		select {
		case <-held:
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
