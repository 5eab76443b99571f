package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// pageSize is the maximum number of entries on a page of a list.
	pageSize = 100
	// uploadedState is the state of a complete asset.
	uploadedState = "uploaded"
	// maxTagWarnings is the number of tags without a release that are named.
	maxTagWarnings = 5
)

// githubRelease is a release with the fields that the client's type lacks.
// Source: GitHub docs, "REST API endpoints for releases".
type githubRelease struct {
	github.RepositoryRelease
	// Immutable says that GitHub refuses the tag forever, even after the release is deleted.
	// Source: GitHub docs, "Immutable releases".
	Immutable bool `json:"immutable"`
}

// asset is an asset of a release with the fields that the client's type lacks.
// Source: GitHub docs, "REST API endpoints for release assets".
type asset struct {
	github.ReleaseAsset
	// Digest is "sha256:..." or empty, on servers that do not know it.
	Digest string `json:"digest"`
}

// The marks are at the start of the text of drafts of this program. The text of a public release has none.
const (
	// draftMark marks a draft that a run fills, and names the run.
	draftMark = "<!-- clusterctl-release draft"
	// asideMark marks a release that was public, until its replacement is public.
	asideMark = "<!-- clusterctl-release replaced -->\n"
)

// draftOf reports whether a release is a draft for a version, by its tag or its name, and whether it belongs to this
// program.
func draftOf(r *githubRelease, version string) (isDraft, own bool) {
	isDraft = r.GetDraft() && (r.GetTagName() == version || r.GetName() == version)
	return isDraft, strings.HasPrefix(r.GetBody(), draftMark) || strings.HasPrefix(r.GetBody(), asideMark)
}

// state is the state of the server for a snapshot of this store.
type state struct {
	// there is the public release of the version; nil without one.
	there *githubRelease
	// assets are those of there or, without it, of the first of hosts.
	assets map[string]*asset
	// hosts are releases with other files that people created for the version, to which files are added.
	hosts []*githubRelease
	// prepared are drafts without files that people created for the version.
	prepared []*githubRelease
	// aside are drafts that were public until a run started to replace them.
	aside []*githubRelease
	// listed are all releases, as far as the list knows.
	listed []*githubRelease
}

func stateOf(s *store.Snapshot) *state {
	is, _ := s.Own.(*state) // each snapshot of this store has one
	return is
}

// host returns the release to which the files of a version are added, or nil. It is an error if there are several.
func (is *state) host(version string) (*githubRelease, error) {
	var urls []string
	for _, r := range is.hosts {
		urls = append(urls, r.GetHTMLURL())
	}
	switch len(urls) {
	case 0:
		return nil, nil
	case 1:
		return is.hosts[0], nil
	}
	return nil, fmt.Errorf("there is more than one draft with files for %s: remove all but one: %s", version, strings.Join(urls, ", "))
}

func (s *repo) Look(ctx context.Context, version string) (*store.Snapshot, error) {
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

// lookAtAssets adds the files of the public release, or of the draft to which they are added, to a snapshot.
func (s *repo) lookAtAssets(ctx context.Context, snapshot *store.Snapshot, is *state) error {
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
		if a.GetState() == uploadedState { // readers don't see an incomplete upload
			snapshot.Files[name] = fileOf(a)
		}
	}
	_, claimed := snapshot.Files[store.ChecksumsFile]
	_, complete := snapshot.Files[release.MetadataFile]
	if is.there != nil {
		snapshot.Immutable = is.there.Immutable
		if complete || !claimed && slices.ContainsFunc(slices.Collect(maps.Keys(snapshot.Files)), isComponents) {
			return nil
		}
		// Nothing that clusterctl reads, or what a run began that added to it.
		if snapshot.Immutable {
			snapshot.Hint = "it is immutable and has no " + release.MetadataFile + ": publish another version, as a draft (Options.Draft) where other files have to be added before it becomes public"
			return nil
		}
		is.hosts, snapshot.Public = []*githubRelease{is.there}, false
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

func isComponents(name string) bool {
	return strings.Contains(name, "components") && strings.HasSuffix(name, ".yaml")
}

// get asks the API about the repository, and decodes the answer into a value.
func (s *repo) get(ctx context.Context, doing, path string, value any) (*github.Response, error) {
	req, err := s.client.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/%s", s.owner, s.name, path), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	resp, err := s.client.Do(ctx, req, value)
	return resp, s.failure(doing, resp, err)
}

// pages returns all entries of a list of the repository, and the number of pages that it took.
func pages[T any](ctx context.Context, s *repo, doing, path string) (all []T, pages int, err error) {
	for page := 1; page != 0; pages++ {
		var some []T
		resp, err := s.get(ctx, doing, fmt.Sprintf("%s?page=%d&per_page=%d", path, page, pageSize), &some)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, some...)
		page = resp.NextPage
	}
	return all, pages, nil
}

// listPages returns all releases of the repository, including drafts if the token may see them, and the number of
// pages. The list may lag behind other requests.
func (s *repo) listPages(ctx context.Context) ([]*githubRelease, int, error) {
	return pages[*githubRelease](ctx, s, "listing the releases of "+s.URL(), "releases")
}

// listAtRest is listPages for callers that must not miss a release: if a release is removed between two pages, the
// others move up, and the first of the next page is in neither. It repeats a list of several pages until two lists are
// equal.
func (s *repo) listAtRest(ctx context.Context) ([]*githubRelease, error) {
	all, pages, err := s.listPages(ctx)
	for try := 0; try < 8 && err == nil && pages > 1; try++ {
		before := all
		all, pages, err = s.listPages(ctx)
		if slices.EqualFunc(before, all, func(x, y *githubRelease) bool {
			return x.GetID() == y.GetID() && x.GetDraft() == y.GetDraft()
		}) {
			break
		}
	}
	return all, err
}

// published returns the public release of a version, or nil. Drafts are not found by their tags.
// Source: GitHub docs, "Get a release by tag name": "Get a published release".
func (s *repo) published(ctx context.Context, version string) (*githubRelease, error) {
	var r githubRelease
	_, err := s.get(ctx, "looking for the release "+version, "releases/tags/"+url.PathEscape(version), &r)
	if err != nil || r.GetDraft() {
		return nil, transport.Unless(err, http.StatusNotFound)
	}
	return &r, nil
}

// fileOf returns an asset in the form of a snapshot; the digest is empty on servers that do not know it.
func fileOf(a *asset) store.File {
	return store.File{Size: int64(a.GetSize()), SHA256: strings.TrimPrefix(strings.ToLower(a.Digest), "sha256:")}
}

// listAssets returns all assets of a release, by their names.
func (s *repo) listAssets(ctx context.Context, id int64) (map[string]*asset, error) {
	listed, _, err := pages[*asset](ctx, s, "listing the files of a release", fmt.Sprintf("releases/%d/assets", id))
	assets := map[string]*asset{}
	for _, a := range listed {
		assets[a.GetName()] = a
	}
	return assets, err
}

func (s *repo) Read(ctx context.Context, there *store.Snapshot, name string) ([]byte, error) {
	a, ok := stateOf(there).assets[name]
	if !ok {
		return nil, errors.New("it is not listed")
	}
	return s.download(ctx, a)
}

// assetDigest returns the digest of an asset, which it downloads if the server does not know the digest. It is empty
// for an incomplete upload.
func (s *repo) assetDigest(ctx context.Context, a *asset) (string, error) {
	if a.GetState() != uploadedState {
		return "", nil
	}
	if sum := fileOf(a).SHA256; sum != "" {
		return sum, nil
	}
	data, err := s.download(ctx, a)
	return release.Digest(data), err
}

func (s *repo) download(ctx context.Context, a *asset) ([]byte, error) {
	doing := "downloading " + a.GetName()
	if a.GetSize() > transport.MaxBody {
		return nil, fmt.Errorf("%s: it has %d MiB, and at most %d are read", doing, a.GetSize()>>20, transport.MaxBody>>20)
	}
	req, err := s.client.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/releases/assets/%d", s.owner, s.name, a.GetID()), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/octet-stream")
	var data bytes.Buffer
	resp, err := s.client.Do(ctx, req, io.Writer(&data))
	if err != nil {
		return nil, s.failure(doing, resp, err)
	}
	if data.Len() != a.GetSize() {
		return nil, fmt.Errorf("%s: %d bytes came, and it has %d: run this again", doing, data.Len(), a.GetSize())
	}
	return data.Bytes(), nil
}

// highestStable returns the highest version without a pre-release part among the public releases
// and this one, or "" if there is none.
func highestStable(listed []*githubRelease, version string) string {
	versions := []string{version}
	for _, r := range listed {
		if !r.GetDraft() && !r.GetPrerelease() {
			versions = append(versions, r.GetTagName())
		}
	}
	return store.Highest(versions, store.Stable)
}

func (s *repo) Versions(ctx context.Context) ([]string, error) {
	listed, _, err := s.listPages(ctx)
	var versions []string
	for _, r := range listed {
		if !r.GetDraft() && isComplete(r) {
			versions = append(versions, r.GetTagName())
		}
	}
	return versions, err
}

func isComplete(r *githubRelease) bool {
	var names []string
	for _, a := range r.Assets {
		if a.GetState() == uploadedState {
			names = append(names, a.GetName())
		}
	}
	return slices.Contains(names, release.MetadataFile) && slices.ContainsFunc(names, isComponents)
}

// LatestVersion returns the latest version from clusterctl's code, or from the list if clusterctl does not read from
// here.
func (s *repo) LatestVersion(ctx context.Context, file string) (string, error) {
	if s.clusterctlReads() && s.opts.Network.Transport == nil {
		client, err := s.clusterctlClient(ctx, store.Latest, file)
		if err != nil {
			return "", fmt.Errorf("%w: finding the latest of %s: %w", release.ErrNoRelease, s.URL(), err)
		}
		return client.DefaultVersion(), nil
	}
	listed, _, err := s.listPages(ctx)
	return highestStable(listed, ""), err
}

// incompleteTags warns about tags that clusterctl treats as the newest version of a series, and that have no release
// with metadata and components: `clusterctl upgrade plan` then fails for all users.
//
// Source: cluster-api issue 8966 and cluster-api-provider-openstack issue 3237.
func (s *repo) incompleteTags(ctx context.Context, own []*store.Version) ([]string, error) {
	newest := map[string]string{}
	note := func(tag string) {
		v, err := release.ParseVersion(tag)
		if err != nil {
			return
		}
		series := fmt.Sprintf("%d.%d %v", v.Major(), v.Minor(), v.PreRelease() != "")
		if store.Compare(tag, newest[series]) > 0 {
			newest[series] = tag
		}
	}
	tags, _, err := pages[*github.RepositoryTag](ctx, s, "listing the tags of "+s.URL(), "tags")
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
