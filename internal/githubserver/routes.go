package githubserver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
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
		reply(w, http.StatusOK, map[string]any{"full_name": full, "private": s.Private, "archived": s.Archived})
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

// release answers requests below /releases.
func (s *Server) release(w http.ResponseWriter, r *http.Request, parts []string, body []byte, may access) {
	switch {
	case len(parts) == 0 && r.Method == http.MethodPost:
		s.create(w, body)
	case len(parts) == 0:
		var list []any
		for _, one := range slices.Backward(s.shown()) {
			// Source: GitHub docs, "List releases": "Only users with push access will receive
			// listings for draft releases".
			if !one.Draft || may == writing {
				list = append(list, s.json(one))
			}
		}
		s.page(w, r, list)
	case parts[0] == "latest":
		if one := find(s.releases, s.latest); one != nil {
			reply(w, http.StatusOK, s.json(one))
			return
		}
		fail(w, http.StatusNotFound, "Not Found")
	case parts[0] == "tags" && len(parts) == 2:
		// Source: GitHub docs, "Get a release by tag name": "Get a published release";
		// github/developer.github.com pull 784: drafts are not looked up by their tags.
		for _, one := range s.shown() {
			if one.Tag == parts[1] && !one.Draft && find(s.releases, one.ID) != nil {
				reply(w, http.StatusOK, s.json(one))
				return
			}
		}
		fail(w, http.StatusNotFound, "Not Found")
	case parts[0] == "assets" && len(parts) == 2:
		s.asset(w, r, parts[1], may)
	default:
		s.oneRelease(w, r, parts, body, may)
	}
}

func (s *Server) oneRelease(w http.ResponseWriter, r *http.Request, parts []string, body []byte, may access) {
	id, err := strconv.ParseInt(parts[0], 10, 64)
	one := find(s.releases, id)
	if err != nil || one == nil || one.Draft && may != writing {
		fail(w, http.StatusNotFound, "Not Found")
		return
	}
	switch {
	case len(parts) == 2 && parts[1] == "assets":
		seen := find(s.shown(), id)
		var list []any
		if seen != nil {
			for _, a := range seen.Assets {
				list = append(list, s.assetJSON(one, a))
			}
		}
		s.page(w, r, list)
	case r.Method == http.MethodPatch:
		s.edit(w, one, body)
	case r.Method == http.MethodDelete:
		s.releases = slices.DeleteFunc(s.releases, func(r *Release) bool { return r.ID == id })
		s.changed()
		w.WriteHeader(http.StatusNoContent)
	default:
		reply(w, http.StatusOK, s.json(one))
	}
}

// wanted is what a request says of a release.
type wanted struct {
	TagName         *string `json:"tag_name"`
	TargetCommitish *string `json:"target_commitish"`
	Name            *string `json:"name"`
	Body            *string `json:"body"`
	Draft           *bool   `json:"draft"`
	Prerelease      *bool   `json:"prerelease"`
	MakeLatest      *string `json:"make_latest"`
}

// create makes a release. Several drafts may have one tag.
// Source: softprops/action-gh-release issue 11, several drafts for one tag from one matrix.
func (s *Server) create(w http.ResponseWriter, body []byte) {
	var want wanted
	if err := json.Unmarshal(body, &want); err != nil || want.TagName == nil || *want.TagName == "" {
		invalid(w, "Release", "tag_name", "missing_field")
		return
	}
	one := &Release{Draft: true, CreatedAt: s.Now()}
	if !s.apply(w, one, want) {
		return
	}
	one.ID = s.newID()
	s.releases = append(s.releases, one)
	s.changed()
	reply(w, http.StatusCreated, s.json(one))
}

func (s *Server) edit(w http.ResponseWriter, one *Release, body []byte) {
	var want wanted
	if err := json.Unmarshal(body, &want); err != nil {
		fail(w, http.StatusBadRequest, "Problems parsing JSON")
		return
	}
	if s.apply(w, one, want) {
		s.changed()
		reply(w, http.StatusOK, s.json(one))
	}
}

// apply changes a release as a request wants it, or answers why not.
func (s *Server) apply(w http.ResponseWriter, one *Release, want wanted) bool {
	next := *one
	set := func(to, from *string) {
		if from != nil {
			*to = *from
		}
	}
	set(&next.Tag, want.TagName)
	set(&next.Target, want.TargetCommitish)
	set(&next.Name, want.Name)
	set(&next.Body, want.Body)
	if want.Prerelease != nil {
		next.Prerelease = *want.Prerelease
	}
	draft := want.Draft != nil && *want.Draft || want.Draft == nil && one.Draft && one.ID != 0
	next.Draft = draft
	if !draft && (one.Draft || one.Tag != next.Tag) {
		// Source: the errors that tools report, e.g. xresloader/upload-to-github-release issue 34:
		// {"resource":"Release","code":"already_exists","field":"tag_name"}.
		for _, other := range s.releases {
			if other.ID != one.ID && other.Tag == next.Tag && !other.Draft {
				invalid(w, "Release", "tag_name", "already_exists")
				return false
			}
		}
		// Source: GitHub docs, "Create a release", target_commitish: "Unused if the Git tag already exists".
		if s.tags[next.Tag] == "" {
			if len(next.Target) != 40 {
				invalid(w, "Release", "target_commitish", "invalid")
				return false
			}
			s.tags[next.Tag] = next.Target
		}
		next.PublishedAt = s.Now()
	}
	// Source: GitHub docs, "Update a release", make_latest: "Drafts and prereleases cannot be set as latest".
	if want.MakeLatest != nil && *want.MakeLatest == "true" {
		if next.Draft || next.Prerelease {
			invalid(w, "Release", "make_latest", "invalid")
			return false
		}
		s.latest = next.ID
	}
	*one = next
	return true
}

// upload takes an asset.
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
	// "starter" is in the way as well (getsentry/craft issue 313).
	if slices.ContainsFunc(one.Assets, func(a *Asset) bool { return a.Name == name }) {
		invalid(w, "ReleaseAsset", "name", "already_exists")
		return
	}
	if len(body) == 0 && bodyErr == nil {
		// Source: cli/cli issue 4980 and others report it for empty files.
		fail(w, http.StatusBadRequest, "Bad Content-Length: 0")
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

// renamed returns the name that an asset gets.
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

// storage answers downloads. It takes no token beside the URL's signature, unless it is the server itself.
// Source: Amazon S3 error responses, InvalidArgument: "Only one auth mechanism allowed".
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

func (s *Server) json(one *Release) map[string]any {
	assets := []any{}
	for _, a := range one.Assets {
		assets = append(assets, s.assetJSON(one, a))
	}
	return map[string]any{
		"id": one.ID, "tag_name": one.Tag, "target_commitish": one.Target, "name": one.Name, "body": one.Body,
		"draft": one.Draft, "prerelease": one.Prerelease, "created_at": one.CreatedAt, "published_at": one.PublishedAt,
		"assets": assets, "html_url": fmt.Sprintf("https://%s/%s/%s/releases/%d", WebHost, s.Owner, s.Name, one.ID),
		"upload_url": fmt.Sprintf("https://%s/repos/%s/%s/releases/%d/assets{?name,label}", UploadsHost, s.Owner, s.Name, one.ID),
	}
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

func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	// Successful answers tell the limits too.
	w.Header().Set("X-RateLimit-Limit", "5000")
	w.Header().Set("X-RateLimit-Remaining", "0")
	w.Header().Set("X-RateLimit-Reset", "4102444800")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client may be gone
}
