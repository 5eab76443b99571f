package githubserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

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
		// Source: GitHub docs, "Get a release by tag name": "Get a published release"; drafts are not
		// looked up by their tags: github/developer.github.com pull request 784.
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
		// An outdated server does not know a new release: the real one was seen to answer 404.
		seen := find(s.shown(), id)
		if seen == nil {
			fail(w, http.StatusNotFound, "Not Found")
			return
		}
		var list []any
		for _, a := range seen.Assets {
			list = append(list, s.assetJSON(one, a))
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

// wanted is a request's description of a release.
type wanted struct {
	TagName         *string `json:"tag_name"`
	TargetCommitish *string `json:"target_commitish"`
	Name            *string `json:"name"`
	Body            *string `json:"body"`
	Draft           *bool   `json:"draft"`
	Prerelease      *bool   `json:"prerelease"`
	MakeLatest      *string `json:"make_latest"`
}

// create creates a release. Several drafts may have one tag.
// Source: softprops/action-gh-release issue 14 and release-drafter/release-drafter issue 1146, several
// drafts of one tag from one matrix and from runs at the same time.
func (s *Server) create(w http.ResponseWriter, body []byte) {
	var want wanted
	if err := json.Unmarshal(body, &want); err != nil || want.TagName == nil || *want.TagName == "" {
		invalid(w, "Release", "tag_name", "missing_field")
		return
	}
	one := &Release{ID: s.newID(), Draft: true, CreatedAt: s.Now()}
	if !s.apply(w, one, want, true) {
		return
	}
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
	if s.apply(w, one, want, false) {
		s.changed()
		reply(w, http.StatusOK, s.json(one))
	}
}

// apply changes a release, which may be new, as a request wants it, or answers why not.
// Source: GitHub docs, "Create a release", the body's parameters: a new one isn't a draft unless it is to be.
func (s *Server) apply(w http.ResponseWriter, one *Release, want wanted, isNew bool) bool {
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
	draft := want.Draft != nil && *want.Draft || want.Draft == nil && one.Draft && !isNew
	next.Draft = draft
	if !draft && (one.Draft || one.Tag != next.Tag) {
		// Source: softprops/action-gh-release issue 445, where it is reported of runs at the same time:
		// {"resource":"Release","code":"already_exists","field":"tag_name"}.
		for _, other := range s.releases {
			if other.ID != one.ID && other.Tag == next.Tag && !other.Draft {
				invalid(w, "Release", "tag_name", "already_exists")
				return false
			}
		}
		// Source: GitHub docs, "Immutable releases", protection against repository resurrection;
		// github-community-projects/ospo-reusable-workflows issue 83, the code and the message
		// "tag_name was used by an immutable release".
		if s.burnt[next.Tag] {
			invalid(w, "Release", "tag_name", "custom")
			return false
		}
		if s.Immutable {
			next.Immutable, s.burnt[next.Tag] = true, true
		}
		// Source: GitHub docs, "Create a release", target_commitish: "Unused if the Git tag already exists";
		// the full hash of a commit or a branch otherwise: concourse/github-release-resource issue 65.
		if s.tags[next.Tag] == "" {
			if len(next.Target) != 40 {
				invalid(w, "Release", "target_commitish", "invalid")
				return false
			}
			s.tags[next.Tag] = next.Target
		}
		next.PublishedAt = s.Now()
	}
	// Source: GitHub docs, "Update a release", make_latest: "Drafts and prereleases cannot be set as latest.
	// Defaults to true for newly published releases."
	makeLatest := !draft && one.Draft && !next.Prerelease
	if want.MakeLatest != nil {
		makeLatest = *want.MakeLatest == "true"
	}
	if makeLatest {
		if next.Draft || next.Prerelease {
			invalid(w, "Release", "make_latest", "invalid")
			return false
		}
		s.latest = next.ID
	}
	*one = next
	return true
}

func (s *Server) json(one *Release) map[string]any {
	assets := []any{}
	for _, a := range one.Assets {
		assets = append(assets, s.assetJSON(one, a))
	}
	return map[string]any{
		"id": one.ID, "tag_name": one.Tag, "target_commitish": one.Target, "name": one.Name, "body": one.Body,
		"draft": one.Draft, "prerelease": one.Prerelease, "immutable": one.Immutable, "created_at": one.CreatedAt, "published_at": one.PublishedAt,
		"assets": assets, "html_url": fmt.Sprintf("https://%s/%s/%s/releases/%d", WebHost, s.Owner, s.Name, one.ID),
		"upload_url": fmt.Sprintf("https://%s/repos/%s/%s/releases/%d/assets{?name,label}", UploadsHost, s.Owner, s.Name, one.ID),
	}
}
