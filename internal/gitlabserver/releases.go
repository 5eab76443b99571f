package gitlabserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
)

// Release is a release of a tag.
type Release struct {
	ID                     int
	Tag, Name, Description string
	Links                  []Link
}

// Link is a link of a release.
type Link struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
	Type string `json:"link_type"`
}

// AddRelease puts a release there as it is, and its tag.
func (s *Server) AddRelease(r Release, commit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ID = s.newID()
	for i := range r.Links {
		r.Links[i].ID = s.newID()
	}
	s.tags[r.Tag] = commit
	s.releases = append(s.releases, &r)
}

// Releases returns copies of all releases.
func (s *Server) Releases() []Release {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := make([]Release, 0, len(s.releases))
	for _, r := range s.releases {
		c := *r
		c.Links = slices.Clone(r.Links)
		copied = append(copied, c)
	}
	return copied
}

// Commit returns the commit that a tag is on.
func (s *Server) Commit(tag string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tags[tag]
}

// routeReleases answers requests below releases.
// Source: GitLab docs, "Project release API" and "Release links API"; lib/api/releases.rb and
// lib/api/release/links.rb of GitLab.
func (s *Server) routeReleases(w http.ResponseWriter, r *http.Request, parts []string, body []byte) {
	if len(parts) == 0 && r.Method == http.MethodPost {
		s.createRelease(w, body)
		return
	}
	var one *Release
	if len(parts) > 0 {
		if i := slices.IndexFunc(s.releases, func(r *Release) bool { return r.Tag == parts[0] }); i >= 0 {
			one = s.releases[i]
		}
	}
	switch {
	case one == nil:
		fail(w, http.StatusNotFound, "404 Not Found")
	case len(parts) == 1 && r.Method == http.MethodGet:
		reply(w, http.StatusOK, s.releaseJSON(one))
	case len(parts) == 3 && parts[1] == "assets" && parts[2] == "links" && r.Method == http.MethodPost:
		s.createLink(w, one, body)
	default:
		fail(w, http.StatusNotFound, "404 Not Found")
	}
}

// routeTags answers requests below repository. The tokens of jobs read no tags.
// Source: GitLab docs, "Tags API", "Get a single repository tag"; "CI/CD job token", "Job token access".
func (s *Server) routeTags(w http.ResponseWriter, r *http.Request, parts []string) {
	commit := ""
	if len(parts) == 2 && parts[0] == "tags" && r.Method == http.MethodGet && r.Header.Get("Job-Token") == "" {
		commit = s.tags[parts[1]]
	}
	if commit == "" {
		fail(w, http.StatusNotFound, "404 Tag Not Found")
		return
	}
	reply(w, http.StatusOK, map[string]any{"name": parts[1], "commit": map[string]any{"id": commit}})
}

// createRelease makes a release with its links, all or nothing, and its tag if there is none.
// Source: app/services/releases/create_service.rb of GitLab.
func (s *Server) createRelease(w http.ResponseWriter, body []byte) {
	var want struct {
		Tag         string `json:"tag_name"`
		Ref         string `json:"ref"`
		Name        string `json:"name"`
		Description string `json:"description"`
		Assets      struct {
			Links []Link `json:"links"`
		} `json:"assets"`
	}
	if err := json.Unmarshal(body, &want); err != nil || want.Tag == "" {
		fail(w, http.StatusBadRequest, "tag_name is missing")
		return
	}
	if slices.ContainsFunc(s.releases, func(r *Release) bool { return r.Tag == want.Tag }) {
		fail(w, http.StatusConflict, "Release already exists")
		return
	}
	one := &Release{ID: s.newID(), Tag: want.Tag, Name: want.Name, Description: want.Description}
	for _, l := range want.Assets.Links {
		if problem := one.add(l, s.newID()); problem != "" {
			fail(w, http.StatusBadRequest, "Validation failed: Links "+problem)
			return
		}
	}
	if s.tags[want.Tag] == "" {
		if want.Ref == "" {
			fail(w, http.StatusUnprocessableEntity, "Ref is not specified")
			return
		}
		s.tags[want.Tag] = want.Ref
	}
	s.releases = append(s.releases, one)
	reply(w, http.StatusCreated, s.releaseJSON(one))
}

// add adds a link, or says what is wrong with it.
// Source: app/models/releases/link.rb of GitLab: names and URLs are unique within a release.
func (r *Release) add(l Link, id int) string {
	if u, err := url.Parse(l.URL); err != nil || u.Host == "" || l.Name == "" {
		return "url is blocked: Only allowed schemes are http, https, ftp"
	}
	for _, other := range r.Links {
		switch {
		case other.Name == l.Name:
			return "name has already been taken"
		case other.URL == l.URL:
			return "url has already been taken"
		}
	}
	l.ID = id
	if l.Type == "" {
		l.Type = "other"
	}
	r.Links = append(r.Links, l)
	return ""
}

func (s *Server) createLink(w http.ResponseWriter, one *Release, body []byte) {
	var want Link
	if err := json.Unmarshal(body, &want); err != nil {
		fail(w, http.StatusBadRequest, "400 Bad request")
		return
	}
	if problem := one.add(want, s.newID()); problem != "" {
		fail(w, http.StatusBadRequest, problem)
		return
	}
	reply(w, http.StatusCreated, one.Links[len(one.Links)-1])
}

func (s *Server) releaseJSON(one *Release) map[string]any {
	links := slices.Clone(one.Links)
	slices.Reverse(links) // the newest comes first
	return map[string]any{
		"tag_name": one.Tag, "name": one.Name, "description": one.Description,
		"commit": map[string]string{"id": s.tags[one.Tag]},
		"assets": map[string]any{"count": len(links), "links": append([]Link{}, links...)},
		"_links": map[string]string{"self": "https://" + Host + "/" + s.Project + "/-/releases/" + one.Tag},
	}
}
