package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// githubRounds is how often publishing a version begins anew as another publisher got in between.
const githubRounds = 5

// cleanUpTime is how long removing what was begun may take after a failure or an interrupt.
const cleanUpTime = 30 * time.Second

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
	var problems []error
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
	if len(differences) == len(b.files) && !slices.ContainsFunc(differences, func(d release.Difference) bool { return d.Kind != "extra" }) {
		for i := range plans {
			if plans[i].Err != nil {
				plans[i].Err = fmt.Errorf("%w; as this one has none of the files, it may be one that was made public too early: make it a draft again on %s, and run this again", plans[i].Err, g.place(b.version))
			}
		}
	}
	return plans, nil
}

// list returns all releases of the repository, drafts too where the token may see them. It may be
// behind what other requests have done.
func (g *githubRepository) list(ctx context.Context) ([]*github.RepositoryRelease, error) {
	var all []*github.RepositoryRelease
	for page := 1; page != 0; {
		some, resp, err := g.client.Repositories.ListReleases(ctx, g.owner, g.name, &github.ListOptions{Page: page, PerPage: githubPage})
		if err != nil {
			return nil, g.failure("listing the releases of "+g.url(), resp, err)
		}
		all = append(all, some...)
		page = resp.NextPage
	}
	return all, nil
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
	published := make([][]release.File, len(all))
	for i, b := range all {
		done, files, err := g.publishBundle(ctx, b)
		if err != nil {
			return nil, err
		}
		result.Releases = append(result.Releases, done...)
		published[i] = files
	}
	for i, b := range all {
		if err := g.readBack(ctx, b, published[i]); err != nil {
			return nil, err
		}
	}
	if !g.clusterctlReads() {
		result.Warnings = append(result.Warnings, fmt.Sprintf("clusterctl reads releases from %s only: from %s its users fetch them (clusterctl release fetch) into a local repository", clusterctlsGitHub, g.server.web))
		result.Commands, result.Entry = nil, ""
	}
	return result, nil
}

// publishBundle makes a bundle public, and returns what was done about it and the files that have
// to be there now.
func (g *githubRepository) publishBundle(ctx context.Context, b *bundle) ([]ReleasePlan, []release.File, error) {
	var last error
	for round := range githubRounds {
		if round > 0 {
			g.opts.tell(fmt.Sprintf("%v; looking again", last))
			if err := g.opts.remote.wait(ctx, pause(round)); err != nil {
				return nil, nil, err
			}
		}
		there, err := g.published(ctx, b.version)
		if err != nil {
			return nil, nil, err
		}
		plans, err := g.planBundle(ctx, b, there)
		if err == nil {
			err = (&Plan{Releases: plans}).Err()
		}
		if err != nil {
			return nil, nil, err
		}
		if plans[0].Action == Unchanged {
			return plans, b.files, g.settle(ctx, b.version, there.GetID()) // what lies beside them may be of more providers
		}
		id, files, err := g.publishRound(ctx, b, there)
		if err == nil {
			return plans, files, g.settle(ctx, b.version, id)
		}
		if !errors.Is(err, errTaken) && !errors.Is(err, errGone) {
			return nil, nil, err
		}
		last = err
	}
	return nil, nil, fmt.Errorf("publishing %s: %w; given up after %d rounds: run this again when nobody else publishes it", b.version, last, githubRounds)
}

// errTaken says that another publisher has made a release public for the version.
var errTaken = errors.New("another publisher has published the version")

// publishRound builds a draft up and makes it public, in place of the release that is there, if any.
// The error is errTaken or errGone where another publisher was quicker.
func (g *githubRepository) publishRound(ctx context.Context, b *bundle, there *github.RepositoryRelease) (int64, []release.File, error) {
	commit, built, err := g.target(ctx, b.version)
	if err != nil {
		return 0, nil, err
	}
	beside, err := madeFiles(b, source{repository: g.url(), commit: built}, g.opts)
	if err != nil {
		return 0, nil, err
	}
	files := append(slices.Clone(b.files), beside...)
	listed, err := g.list(ctx)
	if err != nil {
		return 0, nil, err
	}
	text, adopted := g.text(listed, b.version)
	g.opts.tell("making a draft of " + b.version)
	draft, err := g.createDraft(ctx, b, commit, text)
	if err != nil {
		return 0, nil, err
	}
	if err := g.fill(ctx, draft, files); err != nil {
		g.discard(ctx, draft)
		return 0, nil, err
	}
	if there != nil {
		g.opts.tell("removing the " + b.version + " that is replaced")
		resp, err := g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, there.GetID())
		if err != nil && (resp == nil || resp.StatusCode != http.StatusNotFound) {
			g.discard(ctx, draft)
			return 0, nil, g.failure("removing the release that is replaced", resp, err)
		}
	}
	g.opts.tell("making " + b.version + " public")
	err = g.makePublic(ctx, draft, b.version, commit, text, listed)
	if errors.Is(err, errTaken) {
		g.discardLoser(ctx, draft, b.version)
	}
	if err != nil {
		return 0, nil, err
	}
	for _, id := range adopted {
		_, _ = g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, id) // its text is in the release now; a draft more is only untidy
	}
	return draft, files, nil
}

// releaseText is what a release says of itself.
type releaseText struct{ name, body string }

// text returns the name and the notes of a version's release. Where the user gave no notes, those
// of a draft without files that people have prepared for it are taken; its id is returned too, as
// it has served its purpose then.
func (g *githubRepository) text(listed []*github.RepositoryRelease, version string) (releaseText, []int64) {
	text := releaseText{name: version, body: g.opts.Notes}
	if g.opts.Notes != "" {
		return text, nil
	}
	for _, r := range listed {
		if isDraftOf(r, version) && !isOwnDraft(r) && len(r.Assets) == 0 {
			if r.GetName() != "" {
				text.name = r.GetName()
			}
			text.body = r.GetBody()
			return text, []int64{r.GetID()}
		}
	}
	return text, nil
}

// createDraft makes the draft that this run works in, and returns its id.
func (g *githubRepository) createDraft(ctx context.Context, b *bundle, commit string, text releaseText) (int64, error) {
	mark := newDraftMark(g.opts.remote.time())
	wanted := &github.RepositoryRelease{
		TagName: &b.version, Name: &text.name, Draft: github.Bool(true), Prerelease: github.Bool(!stable(b.version)),
		Body: github.String(mark + "\n" + text.body),
	}
	if commit != "" {
		wanted.TargetCommitish = &commit
	}
	var last error
	for try := range stepTries {
		if try > 0 {
			// The answer was lost, or came after it was made: it would be in the list under its mark.
			if err := g.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return 0, err
			}
			if id, err := g.findDraft(ctx, mark); id != 0 || err != nil {
				return id, err
			}
		}
		r, resp, err := g.client.Repositories.CreateRelease(ctx, g.owner, g.name, wanted)
		if err == nil {
			return r.GetID(), nil
		}
		last = g.failure("making a draft of "+b.version, resp, err)
		if ctx.Err() != nil {
			g.discardMarked(ctx, mark)
			return 0, last
		}
		if resp != nil && resp.StatusCode >= 400 && resp.StatusCode < 500 {
			return 0, last
		}
	}
	return 0, fmt.Errorf("%w; given up after %d tries: run this again", last, stepTries)
}

// findDraft returns the id of the draft with a mark, or 0 where there is none in the list.
func (g *githubRepository) findDraft(ctx context.Context, mark string) (int64, error) {
	listed, err := g.list(ctx)
	for _, r := range listed {
		if r.GetDraft() && strings.HasPrefix(r.GetBody(), mark) {
			return r.GetID(), nil
		}
	}
	return 0, err
}

// discardMarked removes the draft of a run that was interrupted while it was being made.
func (g *githubRepository) discardMarked(ctx context.Context, mark string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	if id, err := g.findDraft(ctx, mark); err == nil && id != 0 {
		g.discard(ctx, id)
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
// before this one left, and mends what "latest" is where two publishers of several versions met.
// As the version is public under another id, none of these drafts can become public any more.
func (g *githubRepository) settle(ctx context.Context, version string, id int64) error {
	var listed []*github.RepositoryRelease
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try)); err != nil {
				return err
			}
		}
		var err error
		if listed, err = g.list(ctx); err != nil {
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
		if r.GetID() == id || !isOwnDraft(r) || r.GetTagName() != version || replaceable(version) && !g.isAbandoned(r) {
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

// discard removes a draft of this run that has never been asked to become public. What can't be
// removed stays behind as what a killed run leaves.
func (g *githubRepository) discard(ctx context.Context, draft int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	_, _ = g.client.Repositories.DeleteRelease(ctx, g.owner, g.name, draft)
}

// discardLoser removes a draft of this run after another one became public for its version.
func (g *githubRepository) discardLoser(ctx context.Context, draft int64, version string) {
	if there, err := g.awaitPublished(ctx, version); err == nil && there.GetID() != draft {
		g.discard(ctx, draft)
	}
}

// allReleases returns the releases of bundles, in their order.
func allReleases(all []*bundle) []*release.Release {
	var releases []*release.Release
	for _, b := range all {
		releases = append(releases, b.releases...)
	}
	return releases
}
