package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/xanzy/go-gitlab"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// claimTime is how long a publisher waits after its claim before it looks who else has claimed: ids
// are given before they are seen, so that one with a lower id may be seen a moment later.
const claimTime = 2 * time.Second

// prepare checks releases, before anything is asked of the server.
func (g *gitlabPackage) prepare(releases []*release.Release) ([]*bundle, error) {
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
		for _, f := range b.files {
			if !assetName.MatchString(f.Name) {
				problems = append(problems, fmt.Errorf("%s: GitLab takes no file %q: use letters, digits, '.', '-', '_' and '+' only", b.owner(f.Name), f.Name))
			}
		}
	}
	return all, errors.Join(problems...)
}

// Plan implements Publisher.
func (g *gitlabPackage) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	all, err := g.prepare(releases)
	if err != nil {
		return nil, err
	}
	return g.plan(ctx, all)
}

func (g *gitlabPackage) plan(ctx context.Context, all []*bundle) (*Plan, error) {
	g.opts.tell("looking at " + g.url())
	plan := &Plan{Target: g.url()}
	for _, b := range all {
		found, err := g.look(ctx, b.version)
		if err != nil {
			return nil, err
		}
		plan.Releases = append(plan.Releases, g.planBundle(b, found)...)
		if found.hidden {
			plan.Warnings = append(plan.Warnings, fmt.Sprintf("the package of %s is hidden: clusterctl reads it, and people do not find it", b.version))
		}
	}
	if !strings.HasPrefix(g.host, clusterctlsGitLab) {
		plan.Warnings = append(plan.Warnings, g.hostWarning())
	}
	if g.opts.Notes != "" && !g.opts.GitLabRelease {
		plan.Warnings = append(plan.Warnings, "a package has no notes: with --gitlab-release they are those of the project's release")
	}
	for _, b := range all {
		if !g.opts.GitLabRelease {
			break
		}
		page, err := g.planPage(ctx, b)
		if err != nil {
			return nil, err
		}
		plan.Pages = append(plan.Pages, *page)
	}
	return plan, nil
}

// planBundle compares a bundle with what is there. A version that is not complete, and claimed with
// the same bytes, is one that a run before this one began.
func (g *gitlabPackage) planBundle(b *bundle, found gitlabVersion) []ReleasePlan {
	claim, claimed := found.claim()
	own := claimed && claim.sha256 == digest(checksums(b.files).Data)
	if len(found.files) == 0 || own && !found.complete() {
		return b.plans(g.place(b.version), false, nil, false)
	}
	var differences []release.Difference
	names := map[string]bool{}
	for _, f := range b.files {
		names[f.Name] = true
		there, ok := found.newest(f.Name)
		switch {
		case !ok:
			differences = append(differences, release.Difference{File: f.Name, Kind: "extra"})
		case there.sha256 != digest(f.Data):
			differences = append(differences, release.Difference{File: f.Name, Kind: "differs"})
		}
	}
	for _, f := range found.files {
		if !names[f.name] && b.reads(f.name) {
			names[f.name] = true
			differences = append(differences, release.Difference{File: f.name, Kind: "missing"})
		}
	}
	if own && len(differences) > 0 {
		return b.plans(g.place(b.version), false, nil, false) // it is this one, and was not finished
	}
	plans := b.plans(g.place(b.version), true, differences, g.opts.Replace)
	if claimed && !found.complete() {
		for i := range plans {
			if plans[i].Err != nil {
				plans[i].Err = fmt.Errorf("%w; it is not complete: another publisher is at work, or was ended; if so, publish those bytes again, or remove the package of %s", plans[i].Err, b.version)
			}
		}
	}
	return plans
}

// Publish implements Publisher.
func (g *gitlabPackage) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	all, err := g.prepare(releases)
	if err == nil {
		err = clientReady()
	}
	if err != nil {
		return nil, err
	}
	if g.credential.secret == "" {
		return nil, fmt.Errorf("there is no token to publish to %s with: give --token-file, set GITLAB_TOKEN, or run it in a job there, which has CI_JOB_TOKEN", g.host)
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
	result.Releases, result.Pages = nil, nil
	for _, b := range all {
		done, err := g.publishBundle(ctx, b)
		if err != nil {
			return nil, err
		}
		result.Releases = append(result.Releases, done...)
	}
	for _, b := range all {
		read, err := g.clusterctlReader(ctx, b.version)
		if err != nil {
			return nil, &ReadBackError{Release: b.releases[0], Err: err}
		}
		if err := readBackFiles(ctx, b, b.files, g.opts, clusterctlReadsAtOnce, read); err != nil {
			return nil, err
		}
	}
	for _, b := range all {
		if !g.opts.GitLabRelease {
			break
		}
		page, warning, err := g.makePage(ctx, b)
		if err != nil {
			return nil, err
		}
		result.Pages = append(result.Pages, *page)
		if warning != "" {
			result.Warnings = append(result.Warnings, warning)
		}
	}
	return result, nil
}

// entries returns the entries of clusterctl's configuration for what is published. Clusterctl knows
// no latest version of a package, so that an entry names the highest.
func (g *gitlabPackage) entries(all []*bundle) []providerEntry {
	var entries []providerEntry
	for _, r := range allReleases(all) {
		if newest(allReleases(all), r) {
			entries = append(entries, providerEntry{Name: r.Provider.Name, Type: r.Provider.Type, URL: g.entryURL(r.Version, r.Provider.ComponentsFile())})
		}
	}
	return entries
}

// publishBundle makes a bundle complete, and returns what was done about it.
func (g *gitlabPackage) publishBundle(ctx context.Context, b *bundle) ([]ReleasePlan, error) {
	found, err := g.look(ctx, b.version)
	if err != nil {
		return nil, err
	}
	plans := g.planBundle(b, found)
	if err := (&Plan{Releases: plans}).Err(); err != nil {
		return nil, err
	}
	beside, err := madeFiles(b, g.source(), g.opts)
	if err != nil {
		return nil, err
	}
	switch plans[0].Action {
	case Unchanged:
		return plans, g.tidy(ctx, b, found)
	case Replace:
		for _, id := range found.packages {
			g.opts.tell("removing the " + b.version + " that is replaced")
			resp, err := g.client.Packages.DeleteProjectPackage(g.project, id, gitlab.WithContext(ctx))
			if err != nil && (resp == nil || resp.StatusCode != http.StatusNotFound) {
				return nil, g.failure("removing the package that is replaced", resp, err)
			}
		}
	}
	if err := g.claimVersion(ctx, b); err != nil {
		return nil, err
	}
	files := inOrder(append(slices.Clone(b.files), beside[1:]...)) // the first is the claim
	for i, f := range files {
		if f.Name == release.MetadataFile {
			// It makes the version, so nobody else must have claimed it meanwhile.
			if err := g.holdsClaim(ctx, b); err != nil {
				return nil, err
			}
		}
		if err := g.put(ctx, b.version, f); err != nil {
			return nil, err
		}
		g.opts.tell(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, i+1, len(files)))
	}
	if found, err = g.look(ctx, b.version); err != nil {
		return nil, err
	}
	return plans, g.tidy(ctx, b, found)
}

// inOrder returns files with metadata.yaml as the last one.
func inOrder(files []release.File) []release.File {
	ordered := slices.Clone(files)
	slices.SortStableFunc(ordered, func(a, b release.File) int {
		last := func(f release.File) int {
			if f.Name == release.MetadataFile {
				return 1
			}
			return 0
		}
		return last(a) - last(b)
	})
	return ordered
}

// claimVersion puts the claim there, unless it is there, and makes sure that it holds.
func (g *gitlabPackage) claimVersion(ctx context.Context, b *bundle) error {
	found, err := g.look(ctx, b.version)
	if err != nil {
		return err
	}
	if _, claimed := found.claim(); !claimed {
		if err := g.send(ctx, b.version, checksums(b.files)); err != nil && !isDuplicate(err) {
			return err
		}
		if err := g.opts.remote.wait(ctx, claimTime); err != nil {
			return err
		}
	}
	return g.holdsClaim(ctx, b)
}

// holdsClaim returns a *ConflictError where the version is claimed for other bytes, and removes the
// claim of this publisher then.
func (g *gitlabPackage) holdsClaim(ctx context.Context, b *bundle) error {
	found, err := g.look(ctx, b.version)
	if err != nil {
		return err
	}
	sums := checksums(b.files)
	claim, claimed := found.claim()
	switch {
	case !claimed:
		return fmt.Errorf("publishing %s: the claim %s is not there any more: somebody removes files of the package; run this again", b.version, ChecksumsFile)
	case claim.sha256 == digest(sums.Data):
		return nil
	}
	for _, f := range found.files {
		if f.name == ChecksumsFile && f.sha256 == digest(sums.Data) {
			_ = g.remove(ctx, f) // the holder removes it as well
		}
	}
	r := b.releases[0]
	return &ConflictError{
		Provider: r.Provider, Version: b.version, Place: g.place(b.version),
		Differences: []release.Difference{{File: ChecksumsFile, Kind: "differs"}}, Replaceable: replaceable(b.version),
	}
}

// put makes sure that a file is there with its bytes. Under a claim that holds nobody puts other
// bytes there, so that what is there and differs is an upload that went wrong.
func (g *gitlabPackage) put(ctx context.Context, version string, f release.File) error {
	var last error
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return err
			}
		}
		found, err := g.look(ctx, version)
		if err != nil {
			return err
		}
		there, ok := found.newest(f.Name)
		if ok && (there.sha256 == digest(f.Data) || made(f.Name)) {
			return nil // one provenance does; two publishers need not say the same
		}
		if ok {
			last = fmt.Errorf("uploading %s: the server has other bytes for it", f.Name)
			if err := g.remove(ctx, there); err != nil {
				return fmt.Errorf("%w, and they can't be removed: %w", last, err)
			}
		}
		if err := g.send(ctx, version, f); err != nil {
			last = err
			var service *serviceError
			if ctx.Err() != nil || errors.As(err, &service) && service.status >= 400 && service.status < 500 && !isDuplicate(err) {
				return err
			}
		}
	}
	return fmt.Errorf("%w; given up after %d tries: run this again", last, stepTries)
}

// send does one upload. Those of one version come one after the other.
// Source: GitLab docs, "Publish a package": "You must call this endpoint serially".
func (g *gitlabPackage) send(ctx context.Context, version string, f release.File) error {
	_, resp, err := g.client.GenericPackages.PublishPackageFile(g.project, g.name, version, f.Name, bytes.NewReader(f.Data), nil, gitlab.WithContext(ctx))
	return g.failure("uploading "+f.Name, resp, err)
}

// isDuplicate says whether a server refused a file as one of that name is there.
// Source: lib/api/generic_packages.rb of GitLab; servers before 15 answered 403.
func isDuplicate(err error) bool {
	var response *gitlab.ErrorResponse
	return errors.As(err, &response) && hasStatus(err, http.StatusBadRequest, http.StatusForbidden) &&
		strings.Contains(strings.ToLower(response.Message), "duplicate package")
}

func (g *gitlabPackage) remove(ctx context.Context, f gitlabFile) error {
	resp, err := g.client.Packages.DeletePackageFile(g.project, f.pkg, f.id, gitlab.WithContext(ctx))
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil
	}
	return g.failure("removing a file "+f.name, resp, err)
}

// tidy removes files that are there twice: with the same bytes, as an answer was lost or two
// publishers went on together, and claims that did not hold. The first of each name stays.
func (g *gitlabPackage) tidy(ctx context.Context, b *bundle, found gitlabVersion) error {
	wanted := map[string]string{ChecksumsFile: digest(checksums(b.files).Data)}
	for _, f := range b.files {
		wanted[f.Name] = digest(f.Data)
	}
	if claim, ok := found.claim(); !ok || claim.sha256 != wanted[ChecksumsFile] {
		return nil // it was put there by something else
	}
	kept := map[string]bool{}
	for _, f := range found.files {
		sum, own := wanted[f.name]
		if f.name == ProvenanceFile {
			sum, own = f.sha256, true // one does, whatever it says
		}
		if !own {
			continue
		}
		if f.sha256 == sum && !kept[f.name] {
			kept[f.name] = true
			continue
		}
		if err := g.remove(ctx, f); hasStatus(err, http.StatusForbidden, http.StatusUnauthorized) {
			return nil // the same file twice hurts nobody, and this user may not remove it
		} else if err != nil {
			return err
		}
	}
	return nil
}
