package tree

import (
	"net"
	"net/http"
	"time"
)

// How long a server of a remote base may take.
var (
	dialTime   = 10 * time.Second
	answerTime = 30 * time.Second
)

// boundFetches bounds the time of kustomize's requests until restore is called; without it, a server that
// takes a connection and never answers holds a build up for ever. Kustomize takes no client: it makes one
// of Go's default transport for each request (sigs.k8s.io/kustomize/api/internal/loader, FileLoader,
// httpClientGetContent). So that transport is another one while kustomizeState is held. What kustomize
// fetches by git has a limit of kustomize's own.
func boundFetches() (restore func()) {
	original, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return func() {} // the program that uses this package has chosen its own
	}
	bounded := original.Clone()
	bounded.DialContext = (&net.Dialer{Timeout: dialTime}).DialContext
	bounded.ResponseHeaderTimeout = answerTime
	http.DefaultTransport = bounded
	return func() {
		http.DefaultTransport = original
		bounded.CloseIdleConnections()
	}
}
