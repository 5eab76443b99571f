// Package githubserver is a fake GitHub for tests: the part of its documented API that publishing and clusterctl use,
// for one repository, including its faults. Each fault names its documentation or report.
package githubserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The hosts of a GitHub.
const (
	WebHost     = "github.com"
	APIHost     = "api.github.com"
	UploadsHost = "uploads.github.com"
	// StorageHost is the target of redirections of downloads.
	StorageHost = "release-assets.githubusercontent.com"
)

// Server is a GitHub with one repository. Its fields are set before it is used.
type Server struct {
	// Owner and Name are those of the repository.
	Owner, Name string
	// Token may read and write, ReadToken may read; without Private, anybody may read.
	Token, ReadToken string
	Private          bool
	// Archived and MovedTo are states of a repository that accepts no releases.
	// Source: GitHub docs, "Archiving repositories", read-only; "Best practices for using the REST API",
	// "Follow redirects".
	Archived bool
	MovedTo  string
	// Now is the server's time.
	Now func() time.Time
	// Lag is the delay of lists, and of releases by their tags.
	Lag time.Duration
	// NoDigests omits digests, as older servers do.
	// Source: GitHub changelog, "Releases now expose digests for release assets", June 2025.
	NoDigests bool
	// Immutable makes each release immutable once it is public.
	// Source: GitHub docs, "Immutable releases".
	Immutable bool
	// PageSize is the maximum size of a page; 0 is the real one.
	PageSize int
	// Base is the server's URL if it serves everything, as a GitHub Enterprise Server does.
	Base string

	mu       sync.Mutex
	lastID   int64
	releases []*Release
	tags     map[string]string
	// burnt are the tags of immutable releases, which no other release can have.
	burnt   map[string]bool
	latest  int64
	history []moment
}

// Release is a release on the server.
type Release struct {
	ID                      int64
	Tag, Name, Body, Target string
	Draft, Prerelease       bool
	Immutable               bool
	CreatedAt, PublishedAt  time.Time
	Assets                  []*Asset
}

// Asset is a file of a release.
type Asset struct {
	ID    int64
	Name  string
	State string
	Data  []byte
}

// moment is the content of lists from a time on.
type moment struct {
	at       time.Time
	releases []*Release
}

// New returns a server with a repository that has a commit and no tags.
func New(owner, name string, now func() time.Time) *Server {
	return &Server{Owner: owner, Name: name, Now: now, Token: "ghs_writer", ReadToken: "ghs_reader", tags: map[string]string{}, burnt: map[string]bool{}}
}

// Hosts returns the server under all of its hosts.
func (s *Server) Hosts() map[string]http.Handler {
	return map[string]http.Handler{WebHost: s, APIHost: s, UploadsHost: s, StorageHost: s}
}

// Tag creates a tag at a commit.
func (s *Server) Tag(tag, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[tag] = commit
}

// Commit returns the commit of a tag.
func (s *Server) Commit(tag string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags[tag]
}

// Add adds a release as it is, and returns its ID.
func (s *Server) Add(r Release) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ID = s.newID()
	for _, a := range r.Assets {
		a.ID = s.newID()
		if a.State == "" {
			a.State = "uploaded"
		}
	}
	if !r.Draft && r.Tag != "" && s.tags[r.Tag] == "" {
		s.tags[r.Tag] = strings.Repeat("a", 40)
	}
	s.releases = append(s.releases, &r)
	if !r.Draft && !r.Prerelease {
		s.latest = r.ID
	}
	s.changed()
	return r.ID
}

// Releases returns copies of all releases, drafts too.
func (s *Server) Releases() []*Release {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.releases)
}

// Latest returns the tag of the release that is called the latest, or "".
func (s *Server) Latest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := find(s.releases, s.latest); r != nil {
		return r.Tag
	}
	return ""
}

// Public returns the files that anybody can download for a tag, or false if it is not public.
func (s *Server) Public(tag string) (map[string][]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.releases {
		if r.Tag == tag && !r.Draft {
			files := map[string][]byte{}
			for _, a := range r.Assets {
				if a.State == "uploaded" {
					files[a.Name] = a.Data
				}
			}
			return files, true
		}
	}
	return nil, false
}

func (s *Server) newID() int64 {
	s.lastID++
	return s.lastID
}

func find(releases []*Release, id int64) *Release {
	i := slices.IndexFunc(releases, func(r *Release) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return releases[i]
}

// clone copies releases; the bytes of assets are never changed and shared.
func clone(releases []*Release) []*Release {
	copied := make([]*Release, 0, len(releases))
	for _, r := range releases {
		c := *r
		c.Assets = make([]*Asset, 0, len(r.Assets))
		for _, a := range r.Assets {
			b := *a
			c.Assets = append(c.Assets, &b)
		}
		copied = append(copied, &c)
	}
	return copied
}

// changed records the new content of lists.
func (s *Server) changed() {
	if s.Lag > 0 {
		s.history = append(s.history, moment{s.Now(), clone(s.releases)})
	}
}

// shown returns the current content of lists, which lag behind.
// Source: cli/cli issue 6599, a draft that is not found for seconds after it was made; octokit/octokit.js
// issue 2909, a release that was just made public and is missing from the list.
func (s *Server) shown() []*Release {
	if s.Lag == 0 {
		return s.releases
	}
	until := s.Now().Add(-s.Lag)
	var shown []*Release
	for _, m := range s.history {
		if m.at.After(until) {
			break
		}
		shown = m.releases
	}
	return shown
}

// access is the set of permissions of a request.
type access int

const (
	nothing access = iota
	reading
	writing
)

// access returns the permissions of a request, or none after it has sent the answer.
func (s *Server) access(w http.ResponseWriter, r *http.Request) access {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case token != "" && token == s.Token:
		return writing
	case token != "" && token == s.ReadToken:
		return reading
	case token != "":
		// Source: GitHub docs, "Authenticating to the REST API", "Failed login limit": a 401 for what isn't a token.
		fail(w, http.StatusUnauthorized, "Bad credentials")
		return nothing
	case s.Private:
		// Source: GitHub docs, "Troubleshooting the REST API", "404 Not Found for an existing resource".
		fail(w, http.StatusNotFound, "Not Found")
		return nothing
	}
	return reading
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"message":%q,"documentation_url":"https://docs.github.com/rest"}`, message) // to a recorder or a client that is gone
}

// invalid answers that the value of a field is not acceptable.
// Source: GitHub docs, "Troubleshooting the REST API", "Validation Failed".
func invalid(w http.ResponseWriter, resource, field, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = fmt.Fprintf(w, `{"message":"Validation Failed","errors":[{"resource":%q,"code":%q,"field":%q}]}`, resource, code, field) // as above
}
