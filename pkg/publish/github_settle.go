package publish

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"
)

// highestStable returns the highest version without a pre-release part among the public releases
// and this one, or "" where there is none.
func highestStable(listed []*github.RepositoryRelease, version string) string {
	highest := ""
	if stable(version) {
		highest = version
	}
	for _, r := range listed {
		if tag := r.GetTagName(); !r.GetDraft() && !r.GetPrerelease() && stable(tag) && (highest == "" || compareVersions(tag, highest) > 0) {
			highest = tag
		}
	}
	return highest
}

// settle waits until everybody sees the release of a version, removes the drafts of it that runs
// before this one left, and those under this run's own mark, and mends what "latest" is where two
// publishers of several versions met. As the version is public under another id, none of these drafts
// can become public any more.
func (g *githubRepository) settle(ctx context.Context, version string, id int64, mark string) error {
	var listed []*github.RepositoryRelease
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try)); err != nil {
				return err
			}
		}
		var err error
		if listed, err = g.listAtRest(ctx); err != nil {
			return err
		}
		// A list that knows of it knows of every draft that was made before.
		if slices.ContainsFunc(listed, func(r *github.RepositoryRelease) bool { return r.GetID() == id && !r.GetDraft() }) {
			break
		}
	}
	there, err := g.awaitPublished(ctx, version)
	if err != nil {
		return err
	}
	if there.GetID() != id {
		return fmt.Errorf("%s was published by something else at the same time, as another release: compare them on %s and remove one", version, g.place(version))
	}
	for _, r := range listed {
		ownMark := mark != "" && strings.HasPrefix(r.GetBody(), mark)
		if r.GetID() == id || !isOwnDraft(r) || r.GetTagName() != version || replaceable(version) && !ownMark && !g.isAbandoned(r) {
			continue
		}
		g.opts.tell("removing a draft that was left behind")
		resp, err := g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, r.GetID())
		if err != nil && (resp == nil || resp.StatusCode != http.StatusNotFound) {
			return g.failure("removing a draft that was left behind", resp, err)
		}
	}
	return g.mendLatest(ctx, listed, version)
}

// isAbandoned says whether the run that made a draft must be over. A version that may be replaced
// can become free again, and the draft of a run that is at work be its next release.
func (g *githubRepository) isAbandoned(r *github.RepositoryRelease) bool {
	fields := strings.Fields(strings.TrimPrefix(r.GetBody(), draftMark))
	if len(fields) < 2 {
		return false
	}
	made, err := time.Parse(time.RFC3339, fields[1])
	return err == nil && g.opts.remote.time().Sub(made) > 2*publishTime
}

// awaitPublished returns the public release of a version that was just published.
func (g *githubRepository) awaitPublished(ctx context.Context, version string) (*github.RepositoryRelease, error) {
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try)); err != nil {
				return nil, err
			}
		}
		there, err := g.published(ctx, version)
		if there != nil || err != nil {
			return there, err
		}
	}
	return nil, fmt.Errorf("%s was published, and is not found under its tag: run this again; it looks first what is there", version)
}

// mendLatest names the highest version "latest" where a publisher of a lower one, which did not
// know of it, named its own.
func (g *githubRepository) mendLatest(ctx context.Context, listed []*github.RepositoryRelease, version string) error {
	highest := highestStable(listed, version)
	if !stable(version) || highest == version {
		return nil
	}
	latest, resp, err := g.client.Repositories.GetLatestRelease(ctx, g.owner, g.name)
	if err != nil {
		return g.failure("looking for the latest release", resp, err)
	}
	if latest.GetTagName() != version {
		return nil
	}
	for _, r := range listed {
		if r.GetTagName() == highest && !r.GetDraft() {
			_, resp, err := g.client.Repositories.EditRelease(ctx, g.owner, g.name, r.GetID(), &github.RepositoryRelease{MakeLatest: github.String("true")})
			return g.failure("naming "+highest+" the latest release", resp, err)
		}
	}
	return nil
}
