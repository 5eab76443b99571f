package gitlabserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
)

// Package is a generic package of one version.
type Package struct {
	ID                    int
	Name, Version, Status string
	Files                 []*File
}

// File is a file of a package; several may have one name.
type File struct {
	ID   int
	Name string
	Data []byte
}

// Put adds a file as it is.
func (s *Server) Put(name, version, status, file string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.findOrCreate(name, version)
	p.Status = status
	p.Files = append(p.Files, &File{ID: s.newID(), Name: file, Data: data})
}

// Files returns the names of all files of a version with their digests, in the order of their uploads.
func (s *Server) Files(name, version string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var files []string
	for _, p := range s.packages {
		if p.Name == name && p.Version == version {
			for _, f := range p.Files {
				files = append(files, f.Name+" "+sum(f.Data))
			}
		}
	}
	return files
}

// Public returns the downloaded bytes for each name of a version.
func (s *Server) Public(name, version string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string][]byte{}
	for _, p := range s.packages {
		if p.Name == name && p.Version == version {
			for _, f := range p.Files {
				files[f.Name] = f.Data // the last one wins, see download
			}
		}
	}
	return files
}

func (s *Server) findOrCreate(name, version string) *Package {
	for _, p := range s.packages {
		if p.Name == name && p.Version == version {
			return p
		}
	}
	p := &Package{ID: s.newID(), Name: name, Version: version, Status: "default"}
	s.packages = append(s.packages, p)
	return p
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// routePackages answers requests below packages.
func (s *Server) routePackages(w http.ResponseWriter, r *http.Request, parts []string, body []byte) {
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	id, _ := strconv.Atoi(at(1))
	i := slices.IndexFunc(s.packages, func(p *Package) bool { return p.ID == id })
	switch {
	case at(1) == "generic" && len(parts) == 5 && r.Method == http.MethodPut:
		s.upload(w, r, parts[2], parts[3], parts[4], body)
	case at(1) == "generic" && len(parts) == 5:
		s.download(w, parts[2], parts[3], parts[4])
	case len(parts) == 1:
		s.list(w, r)
	case i < 0:
		fail(w, http.StatusNotFound, "404 Package Not Found")
	case r.Method == http.MethodDelete && s.Keep:
		fail(w, http.StatusForbidden, "403 Forbidden")
	case len(parts) == 2 && r.Method == http.MethodDelete:
		s.packages = slices.Delete(s.packages, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	case at(2) == "package_files" && len(parts) == 3:
		var list []any
		for _, f := range s.packages[i].Files {
			list = append(list, map[string]any{"id": f.ID, "package_id": id, "file_name": f.Name, "size": len(f.Data), "file_sha256": sum(f.Data)})
		}
		s.page(w, r, list)
	case at(2) == "package_files" && len(parts) == 4 && r.Method == http.MethodDelete:
		file, _ := strconv.Atoi(parts[3])
		p := s.packages[i]
		j := slices.IndexFunc(p.Files, func(f *File) bool { return f.ID == file })
		if j < 0 {
			fail(w, http.StatusNotFound, "404 Not Found")
			return
		}
		p.Files = slices.Delete(p.Files, j, j+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, http.StatusNotFound, "404 Not Found")
	}
}

// fileName is GitLab's rule for the names of files.
// Source: GitLab docs, "GitLab generic packages repository", "Valid package filename format".
var fileName = regexp.MustCompile(`^[A-Za-z0-9._+-]([A-Za-z0-9._+~@-]*[A-Za-z0-9._+-])?$`)

// upload handles the upload of a file.
// Source: GitLab docs, "GitLab generic packages repository", "Publish a single file"; lib/api/generic_packages.rb
// of GitLab: a file of a name that is there is answered with "Duplicate package is not allowed" where
// duplicates are refused; it becomes a second file of that name otherwise.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, name, version, file string, body []byte) {
	if !fileName.MatchString(file) {
		fail(w, http.StatusBadRequest, "file_name is invalid")
		return
	}
	p := s.findOrCreate(name, version)
	there := slices.ContainsFunc(p.Files, func(f *File) bool { return f.Name == file })
	if there && s.RefuseDuplicates {
		fail(w, http.StatusBadRequest, "400 Bad request - Duplicate package is not allowed")
		return
	}
	if status := r.URL.Query().Get("status"); status != "" {
		p.Status = status
	}
	if wire.FaultOf(r) == wire.Short {
		body = body[:len(body)/2]
	}
	p.Files = append(p.Files, &File{ID: s.newID(), Name: file, Data: body})
	reply(w, http.StatusCreated, map[string]string{"message": "201 Created"})
}

// download answers with the newest file of a name, of hidden packages too.
// Source: gitlab-org/gitlab issue 523658, of several files of one name, and merge request 77291, "Allow
// hidden package files to be downloaded".
func (s *Server) download(w http.ResponseWriter, name, version, file string) {
	for _, p := range s.packages {
		if p.Name != name || p.Version != version {
			continue
		}
		for _, f := range slices.Backward(p.Files) {
			if f.Name != file {
				continue
			}
			if s.Redirect {
				w.Header().Set("Location", fmt.Sprintf("https://%s/%d?signature=abc", StorageHost, f.ID))
				w.WriteHeader(http.StatusFound)
				return
			}
			w.Header().Set("X-Checksum-Sha256", sum(f.Data))
			_, _ = w.Write(f.Data) // the client may be gone
			return
		}
	}
	fail(w, http.StatusNotFound, "404 Not Found")
}

// storage answers downloads. It takes no token in addition to the URL's signature.
// Source: as of GitHub's storage, octokit/octokit.js issue 967: object storage takes one of the two.
func (s *Server) storage(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization")+r.Header.Get("Private-Token")+r.Header.Get("Job-Token")+r.Header.Get("Deploy-Token") != "" {
		http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest)
		return
	}
	id, err := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
	for _, p := range s.packages {
		for _, f := range p.Files {
			if err == nil && f.ID == id {
				_, _ = w.Write(f.Data) // the client may be gone
				return
			}
		}
	}
	http.Error(w, "Not Found", http.StatusNotFound)
}

// list answers with packages. Hidden ones are left out unless they are asked for.
// Source: GitLab docs, "Packages API", "List packages": status, and package_name, a fuzzy search.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var list []any
	for _, p := range s.packages {
		status := query.Get("status")
		if name := query.Get("package_name"); name != "" && !strings.Contains(p.Name, name) || // it searches
			query.Get("package_version") != "" && p.Version != query.Get("package_version") ||
			status == "" && p.Status == "hidden" || status != "" && p.Status != status {
			continue
		}
		list = append(list, map[string]any{"id": p.ID, "name": p.Name, "version": p.Version, "package_type": "generic", "status": p.Status})
	}
	s.page(w, r, list)
}
