// Package gitlabserver is a fake GitLab for tests: the generic packages and the releases of one project, as documented
// and as in GitLab's code, including its faults.
package gitlabserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// The hosts of a GitLab.
const (
	Host = "gitlab.example.com"
	// StorageHost is the target of redirections of downloads if objects are stored there.
	StorageHost = "storage.example.net"
)

// Server is a GitLab with one project. Its fields are set before it is used.
type Server struct {
	// Project is the project's path, e.g. "acme/capl"; it is 42 too.
	Project string
	// Token is an access token, JobToken a job's and DeployToken one of the package registry; ReadToken
	// is an access token that may only read.
	Token, JobToken, DeployToken, ReadToken string
	Private                                 bool
	// RefuseDuplicates is the setting for generic packages.
	// Source: GitLab docs, "GitLab generic packages repository", "Disable publishing duplicate package names".
	RefuseDuplicates bool
	// Keep refuses all deletions, as GitLab does for users below the role of a maintainer.
	// Source: app/policies/project_policy.rb of GitLab, destroy_package.
	Keep bool
	// Redirect sends downloads to the storage.
	// Source: GitLab docs, "GitLab generic packages repository", "Get checksums from response headers":
	// with direct download files are redirected to the object storage provider.
	Redirect bool
	// PageSize is the maximum size of a page; 0 is the real one.
	PageSize int

	mu       sync.Mutex
	lastID   int
	packages []*Package
	releases []*Release
	tags     map[string]string
}

// New returns a server with an empty project.
func New(project string) *Server {
	return &Server{ //nolint:gosec // they open nothing
		Project: project, Token: "glpat-writer", JobToken: "glcbt-job", DeployToken: "gldt-deploy", ReadToken: "glpat-reader",
		tags: map[string]string{},
	}
}

// Hosts returns the server under all of its hosts.
func (s *Server) Hosts() map[string]http.Handler {
	return map[string]http.Handler{Host: s, StorageHost: s}
}

// Tag creates a tag at a commit.
func (s *Server) Tag(tag, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[tag] = commit
}

func (s *Server) newID() int {
	s.lastID++
	return s.lastID
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, bodyErr := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Host == StorageHost {
		s.storage(w, r)
		return
	}
	if bodyErr != nil {
		// Uploads are stored when they are complete.
		fail(w, http.StatusBadRequest, "400 Bad request")
		return
	}
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/v4/projects/")
	project, rest, _ := strings.Cut(rest, "/")
	project, err := url.PathUnescape(project)
	may := s.access(r, strings.HasPrefix(rest, "packages/generic/"))
	if !ok || err != nil || project != s.Project && project != "42" || may == "" && s.Private {
		// Source: GitLab docs, "Troubleshooting the REST API", "Status codes": 404 also for what the user
		// may not see.
		fail(w, http.StatusNotFound, "404 Project Not Found")
		return
	}
	if may == "wrong" {
		fail(w, http.StatusUnauthorized, "401 Unauthorized")
		return
	}
	if r.Method != http.MethodGet && may != "write" {
		status := http.StatusForbidden
		if may == "" {
			status = http.StatusUnauthorized
		}
		fail(w, status, fmt.Sprintf("%d %s", status, http.StatusText(status)))
		return
	}
	parts := strings.Split(rest, "/")
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			fail(w, http.StatusBadRequest, "400 Bad request")
			return
		}
	}
	s.route(w, r, parts, body)
}

// access returns the permission of a request: "write", "read", "" without a token, or "wrong". A deploy token
// counts for files of packages only; it is ignored elsewhere.
// Source: GitLab docs, "REST API authentication"; "GitLab generic packages repository", "Authenticate to
// the package registry"; "Deploy tokens", "GitLab public API"; gitlab-org/gitlab issue 333136.
func (s *Server) access(r *http.Request, files bool) string {
	token, job, deploy := r.Header.Get("Private-Token"), r.Header.Get("Job-Token"), r.Header.Get("Deploy-Token")
	if token == "" {
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	if !files {
		deploy = ""
	}
	switch {
	case token == "" && job == "" && deploy == "":
		return ""
	case token == s.Token || job != "" && job == s.JobToken || deploy != "" && deploy == s.DeployToken:
		return "write"
	case token == s.ReadToken:
		return "read"
	}
	return "wrong"
}

// route answers requests below a project.
func (s *Server) route(w http.ResponseWriter, r *http.Request, parts []string, body []byte) {
	switch parts[0] {
	case "packages":
		s.routePackages(w, r, parts, body)
	case "releases":
		s.routeReleases(w, r, parts[1:], body)
	case "repository":
		s.routeTags(w, r, parts[1:])
	default:
		fail(w, http.StatusNotFound, "404 Not Found")
	}
}

// page answers with a page of a list.
// Source: GitLab docs, "REST API", "Pagination".
func (s *Server) page(w http.ResponseWriter, r *http.Request, list []any) {
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	if size <= 0 {
		size = 20
	}
	size = min(size, 100)
	if s.PageSize > 0 {
		size = min(size, s.PageSize)
	}
	number, _ := strconv.Atoi(r.URL.Query().Get("page"))
	number = max(number, 1)
	from := min((number-1)*size, len(list))
	to := min(from+size, len(list))
	if to < len(list) {
		w.Header().Set("X-Next-Page", strconv.Itoa(number+1))
	}
	reply(w, http.StatusOK, append([]any{}, list[from:to]...))
}

func fail(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"message": message})
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client may be gone
}
