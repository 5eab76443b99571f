package github

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// maxAssets is how many assets a release may have.
	// Source: GitHub docs, "About releases", "Storage and bandwidth quotas".
	maxAssets = 1000
	// uploadedState is the state of an asset that is there as a whole.
	uploadedState = "uploaded"
)

// errGone says that a draft was removed: by a run that has published the version.
var errGone = fmt.Errorf("%w: the draft is not there any more", store.ErrTaken)

// assetName are the names that GitHub keeps as they are; in others it replaces characters.
// Source: GitHub docs, "Upload a release asset", the notes.
var assetName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.+-]*$`)

func (s *repo) Fits(all []*store.Version) error {
	var problems []error
	if s.token == "" {
		problems = append(problems, errors.New("there is no token to publish to GitHub with: set GITHUB_TOKEN (in a workflow: env: {GITHUB_TOKEN: ${{ github.token }}}), or give Options.TokenFile"))
	}
	for _, v := range all {
		for _, f := range v.Files {
			if !assetName.MatchString(f.Name) || strings.HasSuffix(f.Name, ".") {
				problems = append(problems, fmt.Errorf("%s: GitHub changes the name %q: use letters, digits, '.', '-', '_' and '+' only, with no '.' first or last", v.Owner(f.Name), f.Name))
			}
			if len(f.Data) == 0 {
				problems = append(problems, fmt.Errorf("%s: %s is empty, and GitHub takes no empty files: take it out of the release", v.Owner(f.Name), f.Name))
			}
		}
		if len(v.Files) >= maxAssets {
			problems = append(problems, fmt.Errorf("%s has %d files, and a release on GitHub has at most %d", v.Number, len(v.Files), maxAssets))
		}
	}
	return errors.Join(problems...)
}

// fileOf returns an asset as a snapshot has it; the digest is empty on servers that do not know it.
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

// assetDigest returns the digest of an asset, for which it is downloaded where the server does not say.
// It is empty for half an upload.
func (s *repo) assetDigest(ctx context.Context, a *asset) (string, error) {
	if a.GetState() != uploadedState {
		return "", nil
	}
	if sum := fileOf(a).SHA256; sum != "" {
		return sum, nil
	}
	data, err := s.download(ctx, a)
	return store.Digest(data), err
}

// download returns the bytes of an asset.
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

// gone returns errGone where a release is not there any more, and nil otherwise.
func (s *repo) gone(ctx context.Context, id int64, why error) error {
	for try := range 3 {
		if try > 0 && s.opts.Network.Wait(ctx, transport.Pause(try)) != nil {
			return why
		}
		_, resp, err := s.client.Repositories.GetRelease(ctx, s.owner, s.name, id)
		if err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", errGone, why)
}

// assets are the files of one release: a draft of this run, or a release that people made for a version.
type assets struct {
	repo *repo
	id   int64
	// sums are the digests of assets that had to be downloaded for them, by their ids.
	sums map[int64]string
}

// filler returns what puts files into a release. Nobody else changes the drafts of this run.
func (s *repo) filler(id int64, draft bool) *store.Filler {
	return &store.Filler{To: &assets{repo: s, id: id, sums: map[int64]string{}}, Client: s.http, Tell: s.opts.Tell, AtOnce: transport.AtOnce, Alone: draft}
}

// List lists the assets in the order in which they came. A server behind the others may not know of the
// release yet.
// Source: GitHub docs, "Upload a release asset": a failure may leave an asset in the state "starter",
// which is to be removed before the file can be sent again.
func (a *assets) List(ctx context.Context, _ string) ([]store.FlatFile, error) {
	listed, err := a.repo.listAssets(ctx, a.id)
	var files []store.FlatFile
	for _, one := range listed {
		sum, ok := a.sums[one.GetID()]
		if !ok && err == nil {
			if sum, err = a.repo.assetDigest(ctx, one); sum != "" {
				a.sums[one.GetID()] = sum
			}
		}
		files = append(files, store.FlatFile{Name: one.GetName(), File: store.File{Size: int64(one.GetSize()), SHA256: sum}, Own: one})
	}
	if transport.HasStatus(err, http.StatusNotFound) {
		return nil, a.repo.gone(ctx, a.id, err)
	}
	slices.SortFunc(files, func(x, y store.FlatFile) int { return cmp.Compare(ownAsset(x).GetID(), ownAsset(y).GetID()) })
	return files, err
}

func ownAsset(f store.FlatFile) *asset {
	a, _ := f.Own.(*asset) // List made it
	return a
}

// Send does one upload.
// Source: GitHub docs, "Upload a release asset".
func (a *assets) Send(ctx context.Context, _ string, f release.File) error {
	s := a.repo
	path := fmt.Sprintf("repos/%s/%s/releases/%d/assets?name=%s", s.owner, s.name, a.id, url.QueryEscape(f.Name))
	req, err := s.client.NewUploadRequest(path, bytes.NewReader(f.Data), int64(len(f.Data)), store.MediaType(f.Name))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(ctx, req, nil)
	err = s.failure("uploading "+f.Name, resp, err)
	if transport.HasStatus(err, http.StatusNotFound) {
		if gone := s.gone(ctx, a.id, err); gone != nil {
			return gone
		}
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	if alreadyExists(err, "name") {
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

// Remove removes an asset; that it is not there is no error.
func (a *assets) Remove(ctx context.Context, _ string, f store.FlatFile) error {
	resp, err := a.repo.client.Repositories.DeleteReleaseAsset(ctx, a.repo.owner, a.repo.name, ownAsset(f).GetID())
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil
	}
	return a.repo.failure("removing the half of "+f.Name, resp, err)
}

// alreadyExists says whether a server refused something as its field has a value that is taken.
func alreadyExists(err error, field string) bool {
	var response *github.ErrorResponse
	if !errors.As(err, &response) || response.Response.StatusCode != http.StatusUnprocessableEntity {
		return false
	}
	for _, e := range response.Errors {
		if e.Code == "already_exists" && e.Field == field {
			return true
		}
	}
	return false
}
