package tree

import (
	"net"
	"net/http"
	"time"
)

// The time limits for servers of remote bases.
var (
	dialTime   = 10 * time.Second
	answerTime = 30 * time.Second
)

// boundFetches limits the time of kustomize's requests until restore is called; otherwise a server that accepts a
// connection and never answers blocks a build forever. kustomize accepts no client: it creates one with Go's default
// transport for each request (sigs.k8s.io/kustomize/api/internal/loader, FileLoader, httpClientGetContent). So
// boundFetches replaces that transport while kustomizeState is locked. kustomize has its own limit for git.
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
