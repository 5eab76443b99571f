package github

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-github/v82/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// pageSize is how many entries a page of a list has at most.
	pageSize = 100
	// maxTagWarnings is how many tags without a release are named.
	maxTagWarnings = 5
)

// The marks begin the text of drafts that this program works in. The text of a public release has none.
const (
	// draftMark is that of a draft that a run fills, and names the run.
	draftMark = "<!-- clusterctl-release draft"
	// asideMark is that of a release that was public, until the one that replaces it is.
	asideMark = "<!-- clusterctl-release replaced -->\n"
)

// draftOf says whether a release is a draft for a version, by its tag or by its name, and whether this
// program works in it.
func draftOf(r *github.RepositoryRelease, version string) (isDraft, own bool) {
	isDraft = r.GetDraft() && (r.GetTagName() == version || r.GetName() == version)
	return isDraft, strings.HasPrefix(r.GetBody(), draftMark) || strings.HasPrefix(r.GetBody(), asideMark)
}

// state is what a snapshot of this store stands on.
type state struct {
	// there is the public release of the version; nil where there is none.
	there *github.RepositoryRelease
	// assets are those of there or, without it, of the first of hosts.
	assets map[string]*github.ReleaseAsset
	// hosts are releases with files of others that people made for the version, to be added to.
	hosts []*github.RepositoryRelease
	// prepared are drafts without files that people made for the version.
	prepared []*github.RepositoryRelease
	// aside are drafts that were the public release until a run was to replace them.
	aside []*github.RepositoryRelease
	// listed are all releases, as far as the list knows.
	listed []*github.RepositoryRelease
}

func stateOf(s *store.Snapshot) *state {
	is, _ := s.Own.(*state) // each snapshot of this store has one
	return is
}

// Look implements store.Store.
func (s *Store) Look(ctx context.Context, version string) (*store.Snapshot, error) {
	there, err := s.published(ctx, version)
	if err != nil {
		return nil, err
	}
	is := &state{there: there}
	if is.listed, _, err = s.listPages(ctx); err != nil {
		return nil, err
	}
	snapshot := &store.Snapshot{Version: version, Files: map[string]store.File{}, Own: is, Public: there != nil, Complete: there != nil}
	for _, r := range is.listed {
		if there != nil && r.GetTagName() == version && !r.GetDraft() && r.GetID() != there.GetID() {
			snapshot.Doubles = append(snapshot.Doubles, there.GetHTMLURL(), r.GetHTMLURL())
		}
		isDraft, own := draftOf(r, version)
		switch {
		case !isDraft || own && !strings.HasPrefix(r.GetBody(), asideMark):
		case own:
			is.aside = append(is.aside, r)
		case there != nil:
			snapshot.Warnings = append(snapshot.Warnings, fmt.Sprintf("there is another draft for %s, which is left as it is: %s", version, r.GetHTMLURL()))
		case len(r.Assets) == 0:
			is.prepared = append(is.prepared, r)
		default:
			is.hosts = append(is.hosts, r)
		}
	}
	for _, r := range append(slices.Clone(is.hosts), is.prepared...) {
		if snapshot.Text == (store.Text{}) && r.GetBody() != "" {
			snapshot.Text = store.Text{Title: r.GetName(), Body: r.GetBody()}
		}
	}
	return snapshot, s.lookAtAssets(ctx, snapshot, is)
}

// lookAtAssets completes a snapshot with the files of the public release or of the draft that they are
// added to.
func (s *Store) lookAtAssets(ctx context.Context, snapshot *store.Snapshot, is *state) error {
	from := is.there
	if from == nil && len(is.hosts) > 0 {
		from = is.hosts[0]
	}
	if from == nil {
		return nil
	}
	var err error
	if is.assets, err = s.listAssets(ctx, from.GetID()); err != nil {
		return err
	}
	for name, a := range is.assets {
		if a.GetState() == uploadedState { // half an upload is nothing to readers
			snapshot.Files[name] = fileOf(a)
		}
	}
	_, claimed := snapshot.Files[store.ChecksumsFile]
	_, complete := snapshot.Files[release.MetadataFile]
	if is.there != nil {
		// GitHub refuses its tag for ever then, even where the release is deleted.
		// Source: GitHub docs, "Immutable releases".
		snapshot.Immutable = is.there.GetImmutable()
		if complete || !claimed && hasComponents(snapshot.Files) {
			return nil
		}
		// Nothing that clusterctl reads, or what a run began that added to it.
		if snapshot.Immutable {
			snapshot.Hint = "it is immutable and has no " + release.MetadataFile + ": publish another version, as a draft (Options.Draft) where other files have to be added before it becomes public"
			return nil
		}
		is.hosts, snapshot.Public = []*github.RepositoryRelease{is.there}, false
		if is.there.GetBody() != "" {
			snapshot.Text = store.Text{Title: is.there.GetName(), Body: is.there.GetBody()}
		}
	}
	if !claimed {
		return nil
	}
	snapshot.Begun, snapshot.Complete = true, complete && s.opts.Draft
	snapshot.Hint = fmt.Sprintf("they are in the %s: another publisher is at work, or was ended; if so, publish those bytes again, or remove them from it", from.GetHTMLURL())
	snapshot.Claim, err = s.assetDigest(ctx, is.assets[store.ChecksumsFile])
	return err
}

func hasComponents(files map[string]store.File) bool {
	for name := range files {
		if strings.Contains(name, "components") && strings.HasSuffix(name, ".yaml") {
			return true
		}
	}
	return false
}

// pages returns all entries of a list of the API, and the number of pages that it took.
func pages[T any](s *Store, doing string, list func(*github.ListOptions) ([]T, *github.Response, error)) (all []T, pages int, err error) {
	for o := (&github.ListOptions{Page: 1, PerPage: pageSize}); o.Page != 0; pages++ {
		some, resp, err := list(o)
		if err != nil {
			return nil, 0, s.failure(doing, resp, err)
		}
		all = append(all, some...)
		o.Page = resp.NextPage
	}
	return all, pages, nil
}

// listPages returns all releases of the repository, drafts too where the token may see them, and the
// number of pages that it took. It may be behind what other requests have done.
func (s *Store) listPages(ctx context.Context) ([]*github.RepositoryRelease, int, error) {
	return pages(s, "listing the releases of "+s.URL(), func(o *github.ListOptions) ([]*github.RepositoryRelease, *github.Response, error) {
		return s.client.Repositories.ListReleases(ctx, s.owner, s.name, o)
	})
}

// listAtRest is listPages for those who must not miss a release: one that is removed while the pages
// come moves the others up, and the first of the next page is in none. A list of several pages is asked
// for again until it says the same twice.
func (s *Store) listAtRest(ctx context.Context) ([]*github.RepositoryRelease, error) {
	all, pages, err := s.listPages(ctx)
	for try := 0; try < 8 && err == nil && pages > 1; try++ {
		before := all
		all, pages, err = s.listPages(ctx)
		if slices.EqualFunc(before, all, func(x, y *github.RepositoryRelease) bool {
			return x.GetID() == y.GetID() && x.GetDraft() == y.GetDraft()
		}) {
			break
		}
	}
	return all, err
}

// published returns the public release of a version, or nil. Drafts are not found by their tags.
// Source: GitHub docs, "Get a release by tag name": "Get a published release".
func (s *Store) published(ctx context.Context, version string) (*github.RepositoryRelease, error) {
	r, resp, err := s.client.Repositories.GetReleaseByTag(ctx, s.owner, s.name, version)
	if resp != nil && resp.StatusCode == http.StatusNotFound || err == nil && r.GetDraft() {
		return nil, nil
	}
	return r, s.failure("looking for the release "+version, resp, err)
}

// highestStable returns the highest version without a pre-release part among the public releases
// and this one, or "" where there is none.
func highestStable(listed []*github.RepositoryRelease, version string) string {
	versions := []string{version}
	for _, r := range listed {
		if !r.GetDraft() && !r.GetPrerelease() {
			versions = append(versions, r.GetTagName())
		}
	}
	return store.HighestStable(versions)
}

// Versions implements store.Store.
func (s *Store) Versions(ctx context.Context) ([]string, error) {
	listed, _, err := s.listPages(ctx)
	var versions []string
	for _, r := range listed {
		if !r.GetDraft() && isComplete(r) {
			versions = append(versions, r.GetTagName())
		}
	}
	return versions, err
}

// isComplete says whether a release has what clusterctl needs of each.
func isComplete(r *github.RepositoryRelease) bool {
	files := map[string]store.File{}
	for _, a := range r.Assets {
		if a.GetState() == uploadedState {
			files[a.GetName()] = store.File{}
		}
	}
	_, ok := files[release.MetadataFile]
	return ok && hasComponents(files)
}

// LatestVersion implements store.Store.
func (s *Store) LatestVersion(ctx context.Context, file string) (string, error) {
	if s.clusterctlReads() && s.opts.Network.Transport == nil {
		client, err := s.clusterctlClient(ctx, store.Latest, file)
		if err != nil {
			return "", fmt.Errorf("%w: finding the latest of %s: %w", release.ErrNoRelease, s.URL(), err)
		}
		return client.DefaultVersion(), nil
	}
	listed, _, err := s.listPages(ctx)
	if err != nil {
		return "", err
	}
	if highest := highestStable(listed, ""); highest != "" {
		return highest, nil
	}
	return "", fmt.Errorf("%w in %s: it has no version without a pre-release part", release.ErrNoRelease, s.URL())
}

// incompleteTags warns of tags that clusterctl takes for the newest version of a series, and that
// have no release with metadata and components: `clusterctl upgrade plan` fails for everybody then.
// Source: cluster-api issue 8966 and cluster-api-provider-openstack issue 3237.
func (s *Store) incompleteTags(ctx context.Context, own []*store.Version) ([]string, error) {
	newest := map[string]string{}
	note := func(tag string) {
		v, err := release.ParseVersion(tag)
		if err != nil {
			return
		}
		series := fmt.Sprintf("%d.%d %v", v.Major(), v.Minor(), v.PreRelease() != "")
		if old, ok := newest[series]; !ok || store.Compare(tag, old) > 0 {
			newest[series] = tag
		}
	}
	tags, _, err := pages(s, "listing the tags of "+s.URL(), func(o *github.ListOptions) ([]*github.RepositoryTag, *github.Response, error) {
		return s.client.Repositories.ListTags(ctx, s.owner, s.name, o)
	})
	if err != nil {
		return nil, err
	}
	for _, t := range tags {
		note(t.GetName())
	}
	complete, err := s.Versions(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range own {
		note(v.Number)
		complete = append(complete, v.Number)
	}
	var bad []string
	for _, tag := range newest {
		if !slices.Contains(complete, tag) {
			bad = append(bad, tag)
		}
	}
	slices.SortFunc(bad, func(a, b string) int { return store.Compare(b, a) })
	var warnings []string
	for i, tag := range bad {
		if i == maxTagWarnings {
			warnings = append(warnings, fmt.Sprintf("and %d more tags", len(bad)-i))
			break
		}
		warnings = append(warnings, fmt.Sprintf("the tag %s has no public release with %s and components: clusterctl takes it for a version, and fails: publish it, or remove the tag", tag, release.MetadataFile))
	}
	return warnings, nil
}

// urlsOf lists the pages of releases.
func urlsOf(releases []*github.RepositoryRelease) string {
	var urls []string
	for _, r := range releases {
		urls = append(urls, r.GetHTMLURL())
	}
	return strings.Join(urls, ", ")
}
