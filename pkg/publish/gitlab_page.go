package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/xanzy/go-gitlab"
)

// A project on GitLab has a page for each of its releases, one for a tag, with links to files. It is
// for people: clusterctl reads the package. It is made once the package is complete, with all of its
// links by one request; of two publishers one makes it, and both look whether it is right.

// pageLinks returns the links that the release of a bundle has: to its files, and to those beside them
// that the package has, or will have where it is not complete.
func (g *gitlabPackage) pageLinks(ctx context.Context, b *bundle) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	there, err := g.look(ctx, b.version)
	if err != nil {
		return nil, err
	}
	files := slices.Clone(b.files)
	beside, err := madeFiles(b, g.source(), g.opts)
	if err != nil {
		return nil, err
	}
	for _, f := range beside {
		if _, ok := there.newest(f.Name); ok || !there.complete() {
			files = append(files, f)
		}
	}
	links := make([]*gitlab.ReleaseAssetLinkOptions, 0, len(files))
	for _, f := range files {
		links = append(links, &gitlab.ReleaseAssetLinkOptions{
			Name: gitlab.Ptr(f.Name), URL: gitlab.Ptr(g.entryURL(b.version, f.Name)), LinkType: gitlab.Ptr(gitlab.PackageLinkType),
		})
	}
	return links, nil
}

// page returns the project's release of a version, or nil. Only this is not behind: GitLab keeps its
// list of releases for minutes.
// Source: GitLab docs, "Project release API", "Get a release by a tag name"; lib/api/releases.rb of
// GitLab, present_cached.
func (g *gitlabPackage) page(ctx context.Context, version string) (*gitlab.Release, error) {
	r, resp, err := g.client.Releases.GetRelease(g.project, version, gitlab.WithContext(ctx))
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	return r, g.failure("looking for the release "+version+" of the project", resp, err)
}

// planPage says what would be done about the project's release of a bundle.
func (g *gitlabPackage) planPage(ctx context.Context, b *bundle) (*PagePlan, error) {
	there, err := g.page(ctx, b.version)
	if err != nil {
		return nil, err
	}
	plan := &PagePlan{Place: g.pagePlace(b.version), Action: Create}
	links, err := g.pageLinks(ctx, b)
	if err != nil {
		return nil, err
	}
	if there != nil {
		plan.Action = Unchanged
		if links, err = g.lacks(there, b.version, links); err != nil {
			return nil, err
		}
		if len(links) > 0 {
			plan.Action = Update
		}
	}
	for _, l := range links {
		plan.Links = append(plan.Links, *l.Name)
	}
	return plan, nil
}

// pagePlace returns what stands for the project's release of a version.
func (g *gitlabPackage) pagePlace(version string) string {
	return "https://" + g.host + gitlabPrefix + strings.ReplaceAll(g.project, "/", "%2F") + "/releases/" + version
}

// checkPage refuses a release that is of another commit than the user's.
func (g *gitlabPackage) checkPage(there *gitlab.Release, version string) error {
	if commit := there.Commit.ID; commitName.MatchString(g.opts.Commit) && commit != "" && !strings.EqualFold(commit, g.opts.Commit) {
		return fmt.Errorf("the release %s of the project is of the commit %s, and not of %s: publish what was built from the tag, or another version", version, commit, g.opts.Commit)
	}
	return nil
}

// missingLinks returns the links that a release lacks. It is an error if a link of that name leads
// elsewhere; others are somebody's own.
func (g *gitlabPackage) missingLinks(there *gitlab.Release, wanted []*gitlab.ReleaseAssetLinkOptions) ([]*gitlab.ReleaseAssetLinkOptions, error) {
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

// makePage makes sure that the project has the release of a bundle with a link to each file, and
// returns what was done. Whatever a step was answered, what is there is looked at after it.
func (g *gitlabPackage) makePage(ctx context.Context, b *bundle) (*PagePlan, string, error) {
	plan := &PagePlan{Place: g.pagePlace(b.version), Action: Unchanged}
	wanted, err := g.pageLinks(ctx, b)
	if err != nil {
		return nil, "", err
	}
	var warning string
	var last error
	for try := range stepTries {
		if last != nil {
			if err := g.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return nil, "", err
			}
		}
		there, err := g.page(ctx, b.version)
		if err != nil {
			return nil, "", err
		}
		if there == nil {
			var text string
			text, warning = g.opts.notes(ctx, b, g.history())
			plan.Action = Create
			last = g.createPage(ctx, b, text, wanted)
		} else {
			missing, err := g.lacks(there, b.version, wanted)
			if err != nil || len(missing) == 0 {
				return plan, warning, err
			}
			if plan.Action == Unchanged {
				plan.Action = Update
			}
			last = g.addLinks(ctx, b.version, missing)
		}
		if ctx.Err() != nil || isPageRefusal(last) {
			return nil, "", last
		}
	}
	if last == nil {
		last = fmt.Errorf("the release %s of the project does not have what was put into it", b.version)
	}
	return nil, "", fmt.Errorf("%w; given up after %d tries: run this again; the package itself is published", last, stepTries)
}

// lacks returns the links that a release of a version lacks.
func (g *gitlabPackage) lacks(there *gitlab.Release, version string, wanted []*gitlab.ReleaseAssetLinkOptions) ([]*gitlab.ReleaseAssetLinkOptions, error) {
	if err := g.checkPage(there, version); err != nil {
		return nil, err
	}
	return g.missingLinks(there, wanted)
}

// createPage asks for the release with all of its links.
// Source: GitLab docs, "Project release API", "Create a release".
func (g *gitlabPackage) createPage(ctx context.Context, b *bundle, text string, links []*gitlab.ReleaseAssetLinkOptions) error {
	g.opts.tell("making the release " + b.version + " of the project")
	wanted := &gitlab.CreateReleaseOptions{
		Name: gitlab.Ptr(b.version), TagName: gitlab.Ptr(b.version), Description: gitlab.Ptr(text),
		Assets: &gitlab.ReleaseAssetsOptions{Links: links},
	}
	if commit := g.source().commit; commit != "" {
		wanted.Ref = gitlab.Ptr(commit)
	}
	_, resp, err := g.client.Releases.CreateRelease(g.project, wanted, gitlab.WithContext(ctx))
	err = g.failure("making the release "+b.version+" of the project", resp, err)
	if hasStatus(err, http.StatusUnprocessableEntity) {
		return fmt.Errorf("%w: if the project has no tag %s, push it first, or name the commit to tag (--commit)", err, b.version)
	}
	return err
}

// addLinks adds links, one after the other.
// Source: GitLab docs, "Release links API", "Create a release link".
func (g *gitlabPackage) addLinks(ctx context.Context, version string, links []*gitlab.ReleaseAssetLinkOptions) error {
	for _, link := range links {
		_, resp, err := g.client.ReleaseLinks.CreateReleaseLink(g.project, version, &gitlab.CreateReleaseLinkOptions{
			Name: link.Name, URL: link.URL, LinkType: link.LinkType,
		}, gitlab.WithContext(ctx))
		if err != nil {
			return g.failure("adding the link "+*link.Name+" to the release "+version, resp, err)
		}
	}
	return nil
}

// isPageRefusal says whether an error is one that another try does not help with. That something is
// there already (409 for a release, 400 for a link) is looked into.
func isPageRefusal(err error) bool {
	var service *serviceError
	return errors.As(err, &service) && service.status >= 400 && service.status < 500 &&
		!slices.Contains([]int{http.StatusConflict, http.StatusBadRequest, http.StatusRequestTimeout}, service.status)
}
