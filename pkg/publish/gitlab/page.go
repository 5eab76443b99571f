package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/xanzy/go-gitlab"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
)

// A project on GitLab has a page for each of its releases, one for a tag, with links to files. It is
// for people: clusterctl reads the package. It is made once the package is complete, with all of its
// links by one request; of two publishers one makes it, and both look whether it is right.

// pageLinks returns the links that the release of a version has: to its files and to generated ones
// that the package has, or will have where it is not complete.
func (s *pkg) pageLinks(ctx context.Context, w *store.Wanted) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	there, err := s.Look(ctx, w.Number)
	if err != nil {
		return nil, err
	}
	var links []*gitlab.ReleaseAssetLinkOptions
	for _, f := range slices.Concat(w.Files, w.All) {
		_, isThere := there.Files[f.Name]
		known := slices.ContainsFunc(links, func(l *gitlab.ReleaseAssetLinkOptions) bool { return *l.Name == f.Name })
		if known || store.Generated(f.Name) && !isThere && there.Complete {
			continue
		}
		links = append(links, &gitlab.ReleaseAssetLinkOptions{
			Name: gitlab.Ptr(f.Name), URL: gitlab.Ptr(s.entryURL(w.Number, f.Name)), LinkType: gitlab.Ptr(gitlab.PackageLinkType),
		})
	}
	return links, nil
}

// page returns the project's release of a version, or nil. Only this is not behind: GitLab keeps its
// list of releases for minutes.
// Source: GitLab docs, "Project release API", "Get a release by a tag name"; lib/api/releases.rb of
// GitLab, present_cached.
func (s *pkg) page(ctx context.Context, version string) (*gitlab.Release, error) {
	r, resp, err := s.client.Releases.GetRelease(s.project, version, gitlab.WithContext(ctx))
	// Servers before 13 answer 403 for a release that is not there; that making it is refused says the rest.
	if resp != nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusForbidden) {
		return nil, nil
	}
	return r, s.failure("looking for the release "+version+" of the project", resp, err)
}

func (s *pkg) PlanPage(ctx context.Context, w *store.Wanted) (*store.Page, error) {
	if !s.opts.Pages {
		return nil, nil
	}
	there, err := s.page(ctx, w.Number)
	if err != nil {
		return nil, err
	}
	plan := &store.Page{Place: s.pagePlace(w.Number), Action: store.Create}
	links, err := s.pageLinks(ctx, w)
	if err == nil && there != nil {
		plan.Action = store.Update
		links, err = s.lacks(there, w, links)
	}
	if err != nil {
		return nil, err
	}
	if len(links) == 0 {
		plan.Action = store.Unchanged
	}
	for _, l := range links {
		plan.Links = append(plan.Links, *l.Name)
	}
	return plan, nil
}

// pagePlace returns what stands for the project's release of a version.
func (s *pkg) pagePlace(version string) string {
	return "https://" + s.host + projectsPath + strings.ReplaceAll(s.project, "/", "%2F") + "/releases/" + version
}

// checkPage refuses a release that is of another commit than the version.
func (s *pkg) checkPage(there *gitlab.Release, w *store.Wanted) error {
	if there.Commit.ID == "" {
		return nil // a release without a tag yet
	}
	_, err := s.opts.CommitToTag(w.Version, s.URL(), there.Commit.ID, "")
	return err
}

// missingLinks returns the links that a release lacks. It is an error if a link of that name leads
// elsewhere; others are somebody's own.
func (s *pkg) missingLinks(there *gitlab.Release, wanted []*gitlab.ReleaseAssetLinkOptions) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	var missing []*gitlab.ReleaseAssetLinkOptions
	for _, want := range wanted {
		i := slices.IndexFunc(there.Assets.Links, func(l *gitlab.ReleaseLink) bool { return l.URL == *want.URL })
		j := slices.IndexFunc(there.Assets.Links, func(l *gitlab.ReleaseLink) bool { return l.Name == *want.Name })
		switch {
		case i >= 0: // under whatever name
		case j >= 0:
			return nil, fmt.Errorf("the release %s of the project has a link %s to %s, and not to %s: remove it, and run this again", there.TagName, *want.Name, there.Assets.Links[j].URL, *want.URL)
		default:
			missing = append(missing, want)
		}
	}
	return missing, nil
}

// MakePage makes the page. Whatever a step was answered, what is there is looked at after it.
func (s *pkg) MakePage(ctx context.Context, w *store.Wanted, text func() string) (*store.Page, error) {
	if !s.opts.Pages {
		return nil, nil
	}
	plan := &store.Page{Place: s.pagePlace(w.Number), Action: store.Unchanged}
	wanted, err := s.pageLinks(ctx, w)
	if err != nil {
		return nil, err
	}
	refused := false
	for try := 1; ; try++ {
		there, err := s.page(ctx, w.Number)
		if err != nil {
			return nil, err
		}
		var last error
		if there == nil {
			plan.Action = store.Create
			last = s.createPage(ctx, w, text(), wanted)
		} else {
			missing, err := s.lacks(there, w, wanted)
			if err != nil || len(missing) == 0 {
				return plan, err
			}
			if plan.Action == store.Unchanged {
				plan.Action = store.Update
			}
			last = s.addLinks(ctx, w.Number, missing)
		}
		if ctx.Err() != nil || isPageRefusal(last) {
			return nil, last
		}
		// What is there already is refused so, and a request that the server does not understand too: the
		// next look tells one from the other.
		if transport.HasStatus(last, http.StatusBadRequest) && refused {
			return nil, last
		}
		refused = transport.HasStatus(last, http.StatusBadRequest)
		if last != nil {
			if err := s.Client.Again(ctx, try, fmt.Errorf("%w; the package itself is published", last)); err != nil {
				return nil, err
			}
		}
		if try >= 8 {
			return nil, fmt.Errorf("the release %s of the project does not have what was put into it: run this again; the package itself is published", w.Number)
		}
	}
}

// lacks returns the links that a release of a version lacks.
func (s *pkg) lacks(there *gitlab.Release, w *store.Wanted, wanted []*gitlab.ReleaseAssetLinkOptions) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	if err := s.checkPage(there, w); err != nil {
		return nil, err
	}
	return s.missingLinks(there, wanted)
}

// createPage asks for the release with all of its links.
// Source: GitLab docs, "Project release API", "Create a release".
func (s *pkg) createPage(ctx context.Context, w *store.Wanted, text string, links []*gitlab.ReleaseAssetLinkOptions) error {
	s.opts.Say("making the release " + w.Number + " of the project")
	wanted := &gitlab.CreateReleaseOptions{
		Name: gitlab.Ptr(w.Number), TagName: gitlab.Ptr(w.Number), Description: gitlab.Ptr(text),
		Assets: &gitlab.ReleaseAssetsOptions{Links: links},
	}
	commit, err := s.commitToTag(ctx, w.Version)
	if err != nil {
		return err
	}
	if commit != "" {
		wanted.Ref = gitlab.Ptr(commit)
	}
	_, resp, err := s.client.Releases.CreateRelease(s.project, wanted, gitlab.WithContext(ctx))
	err = s.failure("making the release "+w.Number+" of the project", resp, err)
	if transport.HasStatus(err, http.StatusUnprocessableEntity) {
		return fmt.Errorf("%w: if the project has no tag %s, push it first, or name the commit to tag (Options.Commit)", err, w.Number)
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

// isPageRefusal says whether an error is one that another try does not help with. That something is
// there already (409 for a release, 400 for a link) is looked into.
func isPageRefusal(err error) bool {
	var service *transport.ServiceError
	return errors.As(err, &service) && service.Status >= 400 && service.Status < 500 &&
		!slices.Contains([]int{http.StatusConflict, http.StatusBadRequest, http.StatusRequestTimeout}, service.Status)
}
