package github

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
)

// clusterctlsHost is the only host whose releases clusterctl reads.
const clusterctlsHost = "github.com"

// server is where a GitHub is spoken to.
type server struct {
	// web is the site, e.g. "https://github.com".
	web string
	// api and uploads are the bases of the API, with a slash at the end.
	api, uploads *url.URL
}

// WebURL returns the site of the GitHub that a pipeline runs on.
func WebURL() string {
	if web := strings.TrimSuffix(os.Getenv("GITHUB_SERVER_URL"), "/"); web != "" {
		return web
	}
	return "https://" + clusterctlsHost
}

// matches says whether a text is a URL of github.com, or of the server that GITHUB_SERVER_URL names.
func matches(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return false
	}
	own, err := url.Parse(WebURL())
	return u.Scheme == "https" && strings.EqualFold(u.Host, clusterctlsHost) ||
		err == nil && u.Scheme == own.Scheme && strings.EqualFold(u.Host, own.Host)
}

// newServer returns where the GitHub at a host is spoken to.
// Source: GitHub docs, "Variables reference", GITHUB_API_URL and GITHUB_SERVER_URL; "Getting started
// with the REST API" of GitHub Enterprise Server and of GitHub Enterprise Cloud with data residency;
// "Upload a release asset".
func newServer(host string) (server, error) {
	at := server{web: "https://" + clusterctlsHost}
	api := "https://api." + clusterctlsHost
	if own, err := url.Parse(WebURL()); err == nil && strings.EqualFold(own.Host, host) {
		at.web = WebURL()
		switch given := os.Getenv("GITHUB_API_URL"); {
		case given != "":
			api = given
		case strings.HasSuffix(strings.ToLower(host), ".ghe.com"):
			api = "https://api." + host
		case !strings.EqualFold(host, clusterctlsHost):
			api = at.web + "/api/v3"
		}
	}
	var err error
	if at.api, err = url.Parse(strings.TrimSuffix(api, "/") + "/"); err != nil || at.api.Host == "" {
		return server{}, fmt.Errorf("GITHUB_API_URL is %q, which is no URL: set it to that of the API, e.g. https://api.github.com", api)
	}
	if at.api.Scheme != "https" && !transport.IsLoopback(at.api.Hostname()) {
		return server{}, fmt.Errorf("GITHUB_API_URL is %q: set it to an https URL, as a token is sent there", api)
	}
	uploads := *at.api
	if rest, ok := strings.CutPrefix(uploads.Host, "api."); ok {
		uploads.Host, uploads.Path = "uploads."+rest, "/"
	} else {
		uploads.Path = strings.TrimSuffix(strings.TrimSuffix(uploads.Path, "/"), "/v3") + "/uploads/"
	}
	at.uploads = &uploads
	return at, nil
}
