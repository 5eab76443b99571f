package githubserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
)

// upload handles the upload of an asset.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, path string, body []byte, bodyErr error) {
	if s.access(w, r) != writing {
		fail(w, http.StatusForbidden, "Resource not accessible by integration")
		return
	}
	rest, ok := strings.CutPrefix(path, "/repos/"+s.Owner+"/"+s.Name+"/releases/")
	idText, isAssets := strings.CutSuffix(rest, "/assets")
	id, err := strconv.ParseInt(idText, 10, 64)
	one := find(s.releases, id)
	if !ok || !isAssets || err != nil || one == nil || r.Method != http.MethodPost {
		fail(w, http.StatusNotFound, "Not Found")
		return
	}
	name := renamed(r.URL.Query().Get("name"))
	// Source: GitHub docs, "Upload a release asset": "If you upload an asset with the same filename as
	// another uploaded asset, you'll receive an error and must delete the old file"; one in the state
	// "starter" is in the way as well: getsentry/craft issue 313.
	if slices.ContainsFunc(one.Assets, func(a *Asset) bool { return a.Name == name }) {
		invalid(w, "ReleaseAsset", "name", "already_exists")
		return
	}
	if len(body) == 0 && bodyErr == nil {
		// Source: xresloader/upload-to-github-release issue 37 and svenstaro/upload-release-action issue
		// 94: "size must be greater than or equal to 1".
		invalid(w, "ReleaseAsset", "size", "custom")
		return
	}
	a := &Asset{ID: s.newID(), Name: name, State: "uploaded", Data: body}
	one.Assets = append(one.Assets, a)
	defer s.changed()
	if bodyErr != nil || wire.FaultOf(r) == wire.Stuck {
		// Source: GitHub docs, "Upload a release asset": "When an upstream failure occurs, you will
		// receive a 502 Bad Gateway status. This may leave an empty asset with a state of starter."
		a.State, a.Data = "starter", nil
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	switch wire.FaultOf(r) {
	case wire.Short:
		a.Data = body[:len(body)/2]
	case wire.Corrupt:
		a.Data = slices.Clone(body)
		a.Data[0] ^= 1
	}
	reply(w, http.StatusCreated, s.assetJSON(one, a))
}

// renamed returns the name that GitHub gives to an asset.
// Source: GitHub docs, "Upload a release asset": "GitHub renames asset filenames that have special
// characters, non-alphanumeric characters, and leading or trailing periods."
func renamed(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.+", r) {
			return r
		}
		return '.'
	}, name)
	return strings.Trim(name, ".")
}

// asset answers requests for one asset.
func (s *Server) asset(w http.ResponseWriter, r *http.Request, idText string, may access) {
	id, err := strconv.ParseInt(idText, 10, 64)
	for _, one := range s.releases {
		i := slices.IndexFunc(one.Assets, func(a *Asset) bool { return a.ID == id })
		if err != nil || i < 0 || one.Draft && may != writing {
			continue
		}
		a := one.Assets[i]
		switch {
		case r.Method == http.MethodDelete:
			one.Assets = slices.Delete(one.Assets, i, i+1)
			s.changed()
			w.WriteHeader(http.StatusNoContent)
		case r.Header.Get("Accept") == "application/octet-stream" && a.State == "uploaded":
			// Source: GitHub docs, "Get a release asset": "The API will either redirect the client to
			// the location, or stream it directly if possible."
			s.toStorage(w, a)
		default:
			reply(w, http.StatusOK, s.assetJSON(one, a))
		}
		return
	}
	fail(w, http.StatusNotFound, "Not Found")
}

func (s *Server) toStorage(w http.ResponseWriter, a *Asset) {
	base := "https://" + StorageHost
	if s.Base != "" {
		base = s.Base + "/storage"
	}
	w.Header().Set("Location", fmt.Sprintf("%s/%d?signature=abc", base, a.ID))
	w.WriteHeader(http.StatusFound)
}

// web answers the links that people, and clusterctl, download from.
func (s *Server) web(w http.ResponseWriter, path string) {
	rest, ok := strings.CutPrefix(path, "/"+s.Owner+"/"+s.Name+"/releases/download/")
	tag, name, _ := strings.Cut(rest, "/")
	for _, one := range s.releases {
		if !ok || s.Private || one.Draft || one.Tag != tag {
			continue
		}
		for _, a := range one.Assets {
			if a.Name == name && a.State == "uploaded" {
				s.toStorage(w, a)
				return
			}
		}
	}
	http.Error(w, "Not Found", http.StatusNotFound)
}

// storage answers downloads. It takes no token in addition to the URL's signature, unless it is the server itself.
// Source: octokit/octokit.js issue 967 and octokit/core.js issue 415, of tokens that were sent along to it.
func (s *Server) storage(w http.ResponseWriter, r *http.Request, path string) {
	if r.Header.Get("Authorization") != "" && s.Base == "" {
		http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest)
		return
	}
	id, err := strconv.ParseInt(strings.Trim(path, "/"), 10, 64)
	for _, one := range s.releases {
		for _, a := range one.Assets {
			if err == nil && a.ID == id {
				w.Header().Set("Content-Length", strconv.Itoa(len(a.Data)))
				_, _ = w.Write(a.Data) // the client may be gone
				return
			}
		}
	}
	http.Error(w, "Not Found", http.StatusNotFound)
}

func (s *Server) assetJSON(one *Release, a *Asset) map[string]any {
	fields := map[string]any{
		"id": a.ID, "name": a.Name, "state": a.State, "size": len(a.Data),
		"browser_download_url": fmt.Sprintf("https://%s/%s/%s/releases/download/%s/%s", WebHost, s.Owner, s.Name, one.Tag, a.Name),
	}
	if !s.NoDigests && a.State == "uploaded" {
		sum := sha256.Sum256(a.Data)
		fields["digest"] = "sha256:" + hex.EncodeToString(sum[:])
	}
	return fields
}
