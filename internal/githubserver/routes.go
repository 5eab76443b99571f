package githubserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ServeHTTP implements http.Handler for all hosts.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, bodyErr := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	host, path := r.Host, r.URL.Path
	if s.Base != "" {
		// Source: GitHub Enterprise Server docs, "Getting started with the REST API".
		for prefix, h := range map[string]string{"/api/v3/": APIHost, "/api/uploads/": UploadsHost, "/storage/": StorageHost} {
			if rest, ok := strings.CutPrefix(path, prefix); ok {
				host, path = h, "/"+rest
			}
		}
		if host == r.Host {
			host = WebHost
		}
	}
	switch host {
	case StorageHost:
		s.storage(w, r, path)
	case WebHost:
		s.web(w, path)
	case UploadsHost:
		if s.access(w, r) != nothing {
			s.upload(w, r, path, body, bodyErr)
		}
	default:
		if bodyErr != nil {
			fail(w, http.StatusBadRequest, "Problems parsing JSON")
			return
		}
		s.api(w, r, path, body)
	}
}

// api answers requests to the REST API.
func (s *Server) api(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	may := s.access(w, r)
	if may == nothing {
		return
	}
	rest, ok := strings.CutPrefix(path, "/repos/"+s.Owner+"/"+s.Name)
	if moved, isMoved := strings.CutPrefix(path, "/repositories/1"); isMoved {
		rest, ok = moved, true
	} else if s.MovedTo != "" && ok {
		// Source: GitHub docs, "Best practices for using the REST API", "Follow redirects".
		w.Header().Set("Location", "https://"+APIHost+"/repositories/1"+rest)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	if !ok {
		fail(w, http.StatusNotFound, "Not Found")
		return
	}
	if r.Method != http.MethodGet && may != writing {
		// Source: GitHub docs, "Troubleshooting the REST API", "Resource not accessible".
		fail(w, http.StatusForbidden, "Resource not accessible by integration")
		return
	}
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	switch {
	case rest == "":
		full := s.Owner + "/" + s.Name
		if s.MovedTo != "" {
			full = s.MovedTo
		}
		reply(w, http.StatusOK, map[string]any{"full_name": full, "private": s.Private, "archived": s.Archived,
			// Source: GitHub docs, "Get a repository", the response's permissions.
			"permissions": map[string]bool{"pull": true, "push": may == writing}})
	case parts[0] == "git" && len(parts) == 4 && parts[1] == "ref" && parts[2] == "tags":
		s.ref(w, parts[3])
	case parts[0] == "tags":
		s.listTags(w, r)
	case parts[0] == "releases":
		s.release(w, r, parts[1:], body, may)
	default:
		fail(w, http.StatusNotFound, "Not Found")
	}
}

func (s *Server) ref(w http.ResponseWriter, tag string) {
	commit, ok := s.tags[tag]
	if !ok {
		fail(w, http.StatusNotFound, "Not Found")
		return
	}
	reply(w, http.StatusOK, map[string]any{"ref": "refs/tags/" + tag, "object": map[string]string{"type": "commit", "sha": commit}})
}

func (s *Server) listTags(w http.ResponseWriter, r *http.Request) {
	var tags []any
	for tag, commit := range s.tags {
		tags = append(tags, map[string]any{"name": tag, "commit": map[string]string{"sha": commit}})
	}
	s.page(w, r, tags)
}

// page answers with a page of a list.
// Source: GitHub docs, "Using pagination in the REST API".
func (s *Server) page(w http.ResponseWriter, r *http.Request, list []any) {
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	if size <= 0 {
		size = 30
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
		next := url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path}
		query := r.URL.Query()
		query.Set("page", strconv.Itoa(number+1))
		next.RawQuery = query.Encode()
		w.Header().Set("Link", fmt.Sprintf(`<%s>; rel="next"`, next.String()))
	}
	if list == nil {
		list = []any{}
	}
	reply(w, http.StatusOK, list[from:to])
}

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	// Successful answers tell the limits too; that nothing is left isn't a refusal yet.
	// Source: GitHub docs, "Rate limits for the REST API", "Checking the status of your rate limit".
	w.Header().Set("X-RateLimit-Limit", "5000")
	w.Header().Set("X-RateLimit-Remaining", "0")
	w.Header().Set("X-RateLimit-Reset", "4102444800")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client may be gone
}
