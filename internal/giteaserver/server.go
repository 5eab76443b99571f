// Package giteaserver is a fake Gitea for tests: the generic packages of one owner, and the part of the API that lists
// them.
// Source: Gitea docs, "Generic Package Registry", the status codes of each operation; Gitea v1.26.0,
// routers/api/packages/generic/generic.go and routers/api/v1/packages/package.go.
package giteaserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Host is the server's host.
const Host = "gitea.example.com"

// Server is a Gitea with an owner's packages. Its fields are set before it is used.
type Server struct {
	// Owner owns the packages.
	Owner string
	// Token may read and write; anybody may read.
	Token string
	// PageSize is the maximum size of a page; 0 means the requested one.
	PageSize int

	mu       sync.Mutex
	lastID   int
	versions []*version
}

// version is a version of a package.
type version struct {
	name, version string
	files         []file
}

// file is a file of a version.
type file struct {
	id   int
	name string
	data []byte
}

// New returns a server without packages.
func New(owner string) *Server { return &Server{Owner: owner, Token: "gitea_writer"} }

// Hosts returns the server by its host.
func (s *Server) Hosts() map[string]http.Handler { return map[string]http.Handler{Host: s} }

// Files returns the bytes of the files of a version, by their names.
func (s *Server) Files(name, of string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string][]byte{}
	if v := s.find(name, of); v != nil {
		for _, f := range v.files {
			files[f.name] = f.data
		}
	}
	return files
}

func (s *Server) find(name, of string) *version {
	for _, v := range s.versions {
		// Source: models/packages/package.go, LowerName.
		if strings.EqualFold(v.name, name) && v.version == of {
			return v
		}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "token ")
	switch {
	case err != nil:
		// Source: UploadPackage: an unreadable body is an internal error, and nothing is stored.
		w.WriteHeader(http.StatusInternalServerError)
		return
	case token != "" && token != s.Token, token == "" && r.Method != http.MethodGet:
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 6 && slices.Equal(parts[:4], []string{"api", "packages", s.Owner, "generic"}):
		s.generic(w, r.Method, parts[4], parts[5], strings.Join(parts[6:], "/"), body)
	case len(parts) == 8 && slices.Equal(parts[:5], []string{"api", "v1", "packages", s.Owner, "generic"}) && parts[7] == "files":
		s.list(w, parts[5], parts[6])
	case len(parts) == 4 && slices.Equal(parts, []string{"api", "v1", "packages", s.Owner}):
		s.search(w, r)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// generic answers requests for files and versions of a package.
func (s *Server) generic(w http.ResponseWriter, method, name, of, fileName string, body []byte) {
	v := s.find(name, of)
	i := -1
	if v != nil {
		i = slices.IndexFunc(v.files, func(f file) bool { return f.name == fileName })
	}
	switch {
	case method == http.MethodPut && i >= 0:
		w.WriteHeader(http.StatusConflict)
	case method == http.MethodPut:
		if v == nil {
			v = &version{name: name, version: of}
			s.versions = append(s.versions, v)
		}
		s.lastID++
		v.files = append(v.files, file{s.lastID, fileName, body})
		w.WriteHeader(http.StatusCreated)
	case v == nil || fileName != "" && i < 0:
		w.WriteHeader(http.StatusNotFound)
	case method == http.MethodDelete && (fileName == "" || len(v.files) == 1):
		// Source: DeletePackageFile: deleting the last file deletes the version.
		s.versions = slices.DeleteFunc(s.versions, func(other *version) bool { return other == v })
		w.WriteHeader(http.StatusNoContent)
	case method == http.MethodDelete:
		v.files = slices.Delete(v.files, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	case fileName != "":
		_, _ = w.Write(v.files[i].data) // to a recorder or a client that is gone
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// list answers with the files of a version.
func (s *Server) list(w http.ResponseWriter, name, of string) {
	v := s.find(name, of)
	if v == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	listed := make([]map[string]any, 0, len(v.files))
	for _, f := range v.files {
		sum := sha256.Sum256(f.data)
		listed = append(listed, map[string]any{"id": f.id, "size": len(f.data), "name": f.name, "sha256": hex.EncodeToString(sum[:])})
	}
	_ = json.NewEncoder(w).Encode(listed) // as above
}

// search answers with a page of the owner's packages whose names contain a text.
func (s *Server) search(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	listed := []map[string]any{}
	for _, v := range slices.Backward(s.versions) {
		if strings.Contains(strings.ToLower(v.name), strings.ToLower(query.Get("q"))) {
			listed = append(listed, map[string]any{"type": "generic", "name": v.name, "version": v.version})
		}
	}
	size, _ := strconv.Atoi(query.Get("limit"))
	if s.PageSize > 0 {
		size = min(size, s.PageSize)
	}
	page, _ := strconv.Atoi(query.Get("page"))
	from := min((page-1)*size, len(listed))
	_ = json.NewEncoder(w).Encode(listed[from:min(from+size, len(listed))]) // as above
}
