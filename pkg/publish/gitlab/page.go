package gitlab

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/xanzy/go-gitlab"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
)

// A project on GitLab has a page for each of its releases, one for each tag, with links to files. It is for people:
// clusterctl reads the package. It is created after the package is complete, with all of its links, by one request; of
// two publishers one creates it, and both check it.

// pageLinks returns the links of a version's release: to its files and to generated ones that the package has, or will
// have if it is not complete.
func (s *pkg) pageLinks(ctx context.Context, v *store.Version) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	there, err := s.Look(ctx, v.Number)
	if err != nil {
		return nil, err
	}
	var links []*gitlab.ReleaseAssetLinkOptions
	for _, f := range slices.Concat(v.Files, v.All) {
		_, isThere := there.Files[f.Name]
		known := slices.ContainsFunc(links, func(l *gitlab.ReleaseAssetLinkOptions) bool { return *l.Name == f.Name })
		if known || store.Generated(f.Name) && !isThere && there.Complete {
			continue
		}
		links = append(links, &gitlab.ReleaseAssetLinkOptions{
			Name: gitlab.Ptr(f.Name), URL: gitlab.Ptr(s.entryURL(v.Number, f.Name)), LinkType: gitlab.Ptr(gitlab.PackageLinkType),
		})
	}
	return links, nil
}

// page returns the project's release of a version, or nil. Only this request is up to date: GitLab caches its list of
// releases for minutes.
// Source: GitLab docs, "Project release API", "Get a release by a tag name"; lib/api/releases.rb of
// GitLab, present_cached.
func (s *pkg) page(ctx context.Context, version string) (*gitlab.Release, error) {
	r, resp, err := s.client.Releases.GetRelease(s.project, version, gitlab.WithContext(ctx))
	// Servers before 13 answer 403 for a release that is not there; that making it is refused says the rest.
	if err = s.failure("looking for the release "+version+" of the project", resp, err); err != nil {
		return nil, transport.Unless(err, http.StatusNotFound, http.StatusForbidden)
	}
	return r, nil
}

// Page creates the page. It checks the result whatever the answers were.
func (s *pkg) Page(ctx context.Context, v *store.Version, text func() string) (*store.Page, error) {
	if !s.opts.Pages {
		return nil, nil
	}
	page := &store.Page{Place: "https://" + s.host + projectsPath + url.PathEscape(s.project) + "/releases/" + v.Number, Action: store.Unchanged}
	wanted, err := s.pageLinks(ctx, v)
	if err != nil {
		return nil, err
	}
	refused := false
	for try := 1; ; try++ {
		there, err := s.page(ctx, v.Number)
		missing := wanted
		if err == nil && there != nil {
			missing, err = s.lacks(there, v, wanted)
		}
		if err != nil {
			return nil, err
		}
		if there != nil && len(missing) == 0 {
			return page, nil
		}
		if page.Action == store.Unchanged {
			page.Action = store.Update
			for _, l := range missing {
				page.Links = append(page.Links, *l.Name)
			}
		}
		if there == nil {
			page.Action = store.Create
		}
		if text == nil {
			return page, nil
		}
		var last error
		if there == nil {
			last = s.createPage(ctx, v, text(), wanted)
		} else {
			last = s.addLinks(ctx, v.Number, missing)
		}
		// An existing release (409) or link (400) is checked. The server also answers 400 to an invalid request; the
		// next look distinguishes them.
		isThere, unclear := transport.HasStatus(last, http.StatusConflict), transport.HasStatus(last, http.StatusBadRequest)
		if ctx.Err() != nil || transport.IsRefusal(last) && !isThere && (!unclear || refused) {
			return nil, last
		}
		refused = unclear
		if last != nil {
			if err := s.Client.Again(ctx, try, fmt.Errorf("%w; the package itself is published", last)); err != nil {
				return nil, err
			}
		}
		if try >= 8 {
			return nil, fmt.Errorf("the release %s of the project does not have what was put into it: run this again; the package itself is published", v.Number)
		}
	}
}

// lacks returns the missing links of a release. It is an error if the release has another commit than the version, or
// if a link with that name has another target; other links belong to people.
func (s *pkg) lacks(there *gitlab.Release, v *store.Version, wanted []*gitlab.ReleaseAssetLinkOptions) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	if there.Commit.ID != "" { // otherwise it has no tag yet
		if _, err := s.opts.CommitToTag(v, s.URL(), there.Commit.ID, ""); err != nil {
			return nil, err
		}
	}
	var missing []*gitlab.ReleaseAssetLinkOptions
	for _, want := range wanted {
		if slices.ContainsFunc(there.Assets.Links, func(l *gitlab.ReleaseLink) bool { return l.URL == *want.URL }) {
			continue // under whatever name
		}
		for _, l := range there.Assets.Links {
			if l.Name == *want.Name {
				return nil, fmt.Errorf("the release %s of the project has a link %s to %s, and not to %s: remove it, and run this again", there.TagName, l.Name, l.URL, *want.URL)
			}
		}
		missing = append(missing, want)
	}
	return missing, nil
}

// createPage creates the release with all of its links.
// Source: GitLab docs, "Project release API", "Create a release".
func (s *pkg) createPage(ctx context.Context, v *store.Version, text string, links []*gitlab.ReleaseAssetLinkOptions) error {
	s.opts.Tell("making the release " + v.Number + " of the project")
	wanted := &gitlab.CreateReleaseOptions{
		Name: gitlab.Ptr(v.Number), TagName: gitlab.Ptr(v.Number), Description: gitlab.Ptr(text),
		Assets: &gitlab.ReleaseAssetsOptions{Links: links},
	}
	commit, err := s.commitToTag(ctx, v)
	if err != nil {
		return err
	}
	if commit != "" {
		wanted.Ref = gitlab.Ptr(commit)
	}
	_, resp, err := s.client.Releases.CreateRelease(s.project, wanted, gitlab.WithContext(ctx))
	err = s.failure("making the release "+v.Number+" of the project", resp, err)
	if transport.HasStatus(err, http.StatusUnprocessableEntity) {
		return fmt.Errorf("%w: if the project has no tag %s, push it first, or name the commit to tag (Options.Commit)", err, v.Number)
	}
	return err
}

// addLinks adds links, one after the other.
// Source: GitLab docs, "Release links API", "Create a release link".
func (s *pkg) addLinks(ctx context.Context, version string, links []*gitlab.ReleaseAssetLinkOptions) error {
	for _, link := range links {
		_, resp, err := s.client.ReleaseLinks.CreateReleaseLink(s.project, version, &gitlab.CreateReleaseLinkOptions{
			Name: link.Name, URL: link.URL, LinkType: link.LinkType,
		}, gitlab.WithContext(ctx))
		if err != nil {
			return s.failure("adding the link "+*link.Name+" to the release "+version, resp, err)
		}
	}
	return nil
}
