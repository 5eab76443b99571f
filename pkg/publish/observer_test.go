package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// observer records problems while processes publish to a test server.
type observer struct {
	mu       sync.Mutex
	seen     int // how often something was public
	problems []string
	reports  []string // lines of progress
}

// report is for Options.Progress and Options.Report.
func (o *observer) report(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports = append(o.reports, line)
}

// saw records that a version was public, and its problems.
func (o *observer) saw(problems ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen++
	o.problems = append(o.problems, problems...)
}

// publish publishes in a separate process. It records requests with leaked secrets, texts with
// secrets, and endless loops.
func (o *observer) publish(ctx context.Context, place string, secrets []string, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.Kill = cancel
	p, err := Open(place, opts)
	if err != nil {
		return nil, err
	}
	result, err := p.Publish(ctx, releases)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, leak := range n.Leaks() {
		o.problems = append(o.problems, "the token leaked to "+leak)
	}
	texts := slices.Concat(o.reports, n.Requests())
	for _, e := range unwrapAll(err) {
		texts = append(texts, fmt.Sprintf("%v %+v %#v", e, e, e))
	}
	if result != nil {
		texts = append(texts, result.String())
	}
	for _, text := range texts {
		if slices.ContainsFunc(secrets, func(secret string) bool { return strings.Contains(text, secret) }) {
			o.problems = append(o.problems, "the token is in the text: "+text)
		}
	}
	if len(n.Requests()) >= 5000 {
		o.problems = append(o.problems, "endless loop: 5000 requests")
	}
	return result, err
}

// violations returns the recorded problems as one error.
func (o *observer) violations() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var problems []error
	for _, p := range o.problems {
		problems = append(problems, errors.New(p))
	}
	return errors.Join(problems...)
}

// unwrapAll returns an error and all that it wraps.
func unwrapAll(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) { //nolint:errorlint // the loop visits each layer
	case interface{ Unwrap() error }:
		all = append(all, unwrapAll(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, unwrapAll(inner)...)
		}
	}
	return all
}

// downloads returns a function that downloads a file as clusterctl does: without a token, from the file's link.
func downloads(n *wire.Network, link func(url, name string) string) func(context.Context, string, string) ([]byte, error) {
	client := &http.Client{Transport: n}
	return func(ctx context.Context, url, name string) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, link(url, name), nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }() // it is in memory
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("status %d", resp.StatusCode)
		}
		return io.ReadAll(resp.Body)
	}
}
