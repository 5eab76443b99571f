package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// githubRounds is how often publishing a version begins anew as another publisher got in between.
const githubRounds = 5

// Plan implements Publisher.
func (g *githubRepository) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	all, err := g.prepare(releases)
	if err != nil {
		return nil, err
	}
	return g.plan(ctx, all)
}

// prepare checks releases, before anything is asked of the server.
func (g *githubRepository) prepare(releases []*release.Release) ([]*bundle, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, err
	}
	all, err := bundles(checked)
	if err != nil {
		return nil, err
	}
	problems := []error{g.opts.checkNotes()}
	for _, b := range all {
		problems = append(problems, checkGitHubFiles(b))
	}
	return all, errors.Join(problems...)
}

func (g *githubRepository) plan(ctx context.Context, all []*bundle) (*Plan, error) {
	g.opts.tell("looking at " + g.url())
	if err := g.check(ctx); err != nil {
		return nil, err
	}
	listed, err := g.list(ctx)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Target: g.url()}
	for _, b := range all {
		there, err := g.published(ctx, b.version)
		if err != nil {
			return nil, err
		}
		plans, err := g.planBundle(ctx, b, there)
		if err != nil {
			return nil, err
		}
		if there == nil {
			if _, _, err := g.target(ctx, b.version); err != nil {
				return nil, err
			}
		}
		plan.Releases = append(plan.Releases, plans...)
		plan.Warnings = append(plan.Warnings, g.draftWarnings(listed, b.version)...)
	}
	incomplete, err := g.incompleteTags(ctx, listed, all)
	if err != nil {
		return nil, err
	}
	plan.Warnings = append(plan.Warnings, incomplete...)
	return plan, nil
}

// planBundle compares a bundle with the release that is public for its version; nil where none is.
func (g *githubRepository) planBundle(ctx context.Context, b *bundle, there *github.RepositoryRelease) ([]ReleasePlan, error) {
	if there == nil {
		return b.plans(g.place(b.version), false, nil, false), nil
	}
	assets, err := g.listAssets(ctx, there.GetID())
	if err != nil {
		return nil, err
	}
	var differences []release.Difference
	for _, f := range b.files {
		a, ok := assets[f.Name]
		delete(assets, f.Name)
		if !ok {
			differences = append(differences, release.Difference{File: f.Name, Kind: "extra"})
			continue
		}
		if same, err := g.sameBytes(ctx, a, f.Data); err != nil {
			return nil, err
		} else if !same {
			differences = append(differences, release.Difference{File: f.Name, Kind: "differs"})
		}
	}
	for name := range assets {
		if b.reads(name) { // others, such as binaries, come from elsewhere and bother nobody
			differences = append(differences, release.Difference{File: name, Kind: "missing"})
		}
	}
	plans := b.plans(g.place(b.version), true, differences, g.opts.Replace)
	if len(differences) > 0 && replaceable(b.version) {
		immutable, err := g.isImmutable(ctx, there.GetID())
		if err != nil {
			return nil, err
		}
		for i := range plans {
			if immutable {
				plans[i].refuse(true)
			}
		}
	}
	if len(differences) == len(b.files) && !slices.ContainsFunc(differences, func(d release.Difference) bool { return d.Kind != "extra" }) {
		for i := range plans {
			if plans[i].Err != nil {
				plans[i].Err = fmt.Errorf("%w; as this one has none of the files, it may be one that was made public too early: make it a draft again on %s, and run this again", plans[i].Err, g.place(b.version))
			}
		}
	}
	return plans, nil
}

// isImmutable says whether a release is immutable: GitHub refuses its tag for ever, even where the release is
// deleted, so that nothing can take its place.
// Source: GitHub docs, "Immutable releases"; "Get a release", the field immutable, which the library lacks.
func (g *githubRepository) isImmutable(ctx context.Context, id int64) (bool, error) {
	doing := "looking whether the release is immutable"
	request, err := g.client.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/releases/%d", g.owner, g.name, id), nil)
	if err != nil {
		return false, fmt.Errorf("%s: %w", doing, err)
	}
	var answer struct {
		Immutable bool `json:"immutable"`
	}
	resp, err := g.client.Do(ctx, request, &answer)
	return answer.Immutable, g.failure(doing, resp, err)
}

// list returns all releases of the repository, drafts too where the token may see them. It may be
// behind what other requests have done.
func (g *githubRepository) list(ctx context.Context) ([]*github.RepositoryRelease, error) {
	all, _, err := g.listPages(ctx)
	return all, err
}

// listPages is list with the number of pages that it took.
func (g *githubRepository) listPages(ctx context.Context) (all []*github.RepositoryRelease, pages int, err error) {
	for page := 1; page != 0; pages++ {
		some, resp, err := g.client.Repositories.ListReleases(ctx, g.owner, g.name, &github.ListOptions{Page: page, PerPage: githubPage})
		if err != nil {
			return nil, 0, g.failure("listing the releases of "+g.url(), resp, err)
		}
		all = append(all, some...)
		page = resp.NextPage
	}
	return all, pages, nil
}

// listAtRest is list for those who must not miss a release: one that is removed while the pages come
// moves the others up, and the first of the next page is in none. A list of several pages is asked
// for again until it says the same twice.
func (g *githubRepository) listAtRest(ctx context.Context) ([]*github.RepositoryRelease, error) {
	all, pages, err := g.listPages(ctx)
	for try := 0; try < stepTries && err == nil && pages > 1; try++ {
		before := all
		if all, pages, err = g.listPages(ctx); sameReleases(before, all) {
			break
		}
	}
	return all, err
}

// sameReleases says whether two lists have the same releases in the same order.
func sameReleases(a, b []*github.RepositoryRelease) bool {
	return slices.EqualFunc(a, b, func(x, y *github.RepositoryRelease) bool {
		return x.GetID() == y.GetID() && x.GetDraft() == y.GetDraft()
	})
}

// published returns the public release of a version, or nil. Drafts are not found by their tags.
// Source: GitHub docs, "Get a release by tag name": "Get a published release".
func (g *githubRepository) published(ctx context.Context, version string) (*github.RepositoryRelease, error) {
	r, resp, err := g.client.Repositories.GetReleaseByTag(ctx, g.owner, g.name, version)
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, g.failure("looking for the release "+version, resp, err)
	}
	if r.GetDraft() {
		return nil, nil
	}
	return r, nil
}

// isDraftOf says whether a release is a draft for a version: by its tag, or by its name.
func isDraftOf(r *github.RepositoryRelease, version string) bool {
	return r.GetDraft() && (r.GetTagName() == version || r.GetName() == version)
}

// isOwnDraft says whether a draft was made by this program.
func isOwnDraft(r *github.RepositoryRelease) bool {
	return r.GetDraft() && strings.HasPrefix(r.GetBody(), draftMark)
}

// Publish implements Publisher.
func (g *githubRepository) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	all, err := g.prepare(releases)
	if err == nil && g.clusterctlReads() {
		err = clientReady()
	}
	if err != nil {
		return nil, err
	}
	if g.token == "" {
		return nil, errors.New("there is no token to publish to GitHub with: set GITHUB_TOKEN (in a workflow: env: {GITHUB_TOKEN: ${{ github.token }}}), or give --token-file")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, publishTime, fmt.Errorf("publishing took more than %s", publishTime))
	defer cancel()
	plan, err := g.plan(ctx, all)
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, err
	}
	result := &Result{Plan: *plan, Commands: clusterctlCommands("", allReleases(all)), Entry: entryText(g.entries(all))}
	result.Releases = nil
	published := make([]githubDone, len(all))
	for i, b := range all {
		if published[i], err = g.publishBundle(ctx, b); err != nil {
			return nil, err
		}
		result.Releases = append(result.Releases, published[i].plans...)
		result.Warnings = append(result.Warnings, published[i].warnings...)
	}
	for i, b := range all {
		if err := g.readBack(ctx, b, published[i].files); err != nil {
			return nil, err
		}
	}
	if !g.clusterctlReads() {
		result.Warnings = append(result.Warnings, fmt.Sprintf("clusterctl reads releases from %s only: from %s its users fetch them (clusterctl release fetch) into a local repository", clusterctlsGitHub, g.server.web))
		result.Commands, result.Entry = nil, ""
	}
	return result, nil
}

// githubDone is what was done about a bundle.
type githubDone struct {
	plans []ReleasePlan
	// id is the release, and mark what its draft was marked with; mark is empty where there was none.
	id   int64
	mark string
	// files have to be there now.
	files    []release.File
	warnings []string
}

// publishBundle makes a bundle public, and returns what was done about it.
func (g *githubRepository) publishBundle(ctx context.Context, b *bundle) (githubDone, error) {
	var last error
	for round := range githubRounds {
		if round > 0 {
			g.opts.tell(fmt.Sprintf("%v; looking again", last))
			if err := g.opts.remote.wait(ctx, pause(round)); err != nil {
				return githubDone{}, err
			}
		}
		there, err := g.published(ctx, b.version)
		if err != nil {
			return githubDone{}, err
		}
		plans, err := g.planBundle(ctx, b, there)
		if err == nil {
			err = (&Plan{Releases: plans}).Err()
		}
		if err != nil {
			return githubDone{}, err
		}
		done := githubDone{id: there.GetID(), files: b.files} // what lies beside them may be of more providers
		if plans[0].Action != Unchanged {
			done, err = g.publishRound(ctx, b, there)
		}
		if err == nil {
			done.plans = plans
			return done, g.settle(ctx, b.version, done.id, done.mark)
		}
		if !errors.Is(err, errTaken) && !errors.Is(err, errGone) {
			return githubDone{}, err
		}
		last = err
	}
	return githubDone{}, fmt.Errorf("publishing %s: %w; given up after %d rounds: run this again when nobody else publishes it", b.version, last, githubRounds)
}

// errTaken says that another publisher has made a release public for the version.
var errTaken = errors.New("another publisher has published the version")

// publishRound builds a draft up under a mark of its own and makes it public, in place of the release
// that is there, if any. The error is errTaken or errGone where another publisher was quicker.
func (g *githubRepository) publishRound(ctx context.Context, b *bundle, there *github.RepositoryRelease) (githubDone, error) {
	commit, built, err := g.target(ctx, b.version)
	if err != nil {
		return githubDone{}, err
	}
	beside, err := madeFiles(b, source{repository: g.url(), commit: built}, g.opts)
	if err != nil {
		return githubDone{}, err
	}
	done := githubDone{mark: newDraftMark(g.opts.remote.time()), files: append(slices.Clone(b.files), beside...)}
	listed, err := g.list(ctx)
	if err != nil {
		return githubDone{}, err
	}
	text, adopted := g.text(listed, b.version)
	if text.body == "" {
		var warning string
		if text.body, warning = g.opts.notes(ctx, b, g.history(listed)); warning != "" {
			done.warnings = append(done.warnings, warning)
		}
	}
	g.opts.tell("making a draft of " + b.version)
	if done.id, err = g.createDraft(ctx, b, done.mark, commit, text); err != nil {
		return githubDone{}, err
	}
	if err := g.fill(ctx, done.id, done.files); err != nil {
		g.discard(ctx, done.id)
		return githubDone{}, err
	}
	if there != nil {
		g.opts.tell("removing the " + b.version + " that is replaced")
		resp, err := g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, there.GetID())
		if err != nil && (resp == nil || resp.StatusCode != http.StatusNotFound) {
			g.discard(ctx, done.id)
			return githubDone{}, g.failure("removing the release that is replaced", resp, err)
		}
	}
	g.opts.tell("making " + b.version + " public")
	err = g.makePublic(ctx, done.id, b.version, commit, text, listed)
	if errors.Is(err, errTaken) {
		g.discardLoser(ctx, done.id, b.version)
	}
	if err != nil {
		return githubDone{}, err
	}
	for _, id := range adopted {
		_, _ = g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, id) // its text is in the release now; a draft more is only untidy
	}
	return done, nil
}

// Previous implements Publisher.
func (g *githubRepository) Previous(ctx context.Context, releases []*release.Release) ([]*release.Release, error) {
	listed, err := g.list(ctx)
	if err != nil {
		return nil, err
	}
	return g.opts.checkedAgainst(ctx, releases, g.history(listed))
}

// history returns the public releases of the repository.
func (g *githubRepository) history(listed []*github.RepositoryRelease) history {
	return history{
		place: g.url(),
		versions: func(context.Context, release.Provider) ([]string, error) {
			var versions []string
			for _, r := range listed {
				if !r.GetDraft() && isComplete(r) {
					versions = append(versions, r.GetTagName())
				}
			}
			return versions, nil
		},
		fetch: g.Fetch,
	}
}

// makePublic makes a draft of this run public. Once it has been asked for, the draft may be public
// whatever was answered, and is not touched any more.
func (g *githubRepository) makePublic(ctx context.Context, draft int64, version, commit string, text releaseText, listed []*github.RepositoryRelease) error {
	wanted := &github.RepositoryRelease{
		TagName: &version, Name: &text.name, Body: &text.body,
		Draft: github.Bool(false), Prerelease: github.Bool(!stable(version)),
		MakeLatest: github.String(strconv.FormatBool(highestStable(listed, version) == version)),
	}
	if commit != "" {
		wanted.TargetCommitish = &commit
	}
	_, resp, err := g.client.Repositories.EditRelease(ctx, g.owner, g.name, draft, wanted)
	switch {
	case alreadyExists(err, "tag_name"):
		return fmt.Errorf("%w %s", errTaken, version)
	case resp != nil && resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w: %w", errGone, err)
	case err != nil:
		return g.failure("making "+version+" public", resp, err)
	}
	return nil
}

// allReleases returns the releases of bundles, in their order.
func allReleases(all []*bundle) []*release.Release {
	var releases []*release.Release
	for _, b := range all {
		releases = append(releases, b.releases...)
	}
	return releases
}
