package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/google/go-github/v60/github"
	"golang.org/x/sync/errgroup"

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

// asset is an asset of a release. The client's own type knows no digest.
// Source: GitHub docs, "REST API endpoints for release assets".
type asset struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	Size  int64  `json:"size"`
	// Digest is "sha256:..." or empty, on servers that do not know it.
	Digest string `json:"digest"`
}

// file returns the asset as a snapshot has it. Half an upload has a size that no file has.
func (a asset) file() store.File {
	if a.State != uploadedState {
		return store.File{Size: 1 << 62}
	}
	return store.File{Size: a.Size, SHA256: strings.TrimPrefix(strings.ToLower(a.Digest), "sha256:")}
}

// assetName are the names that GitHub keeps as they are; in others it replaces characters.
// Source: GitHub docs, "Upload a release asset", the notes.
var assetName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.+-]*$`)

// Fits implements store.Store.
func (s *Store) Fits(v *store.Version) error {
	var problems []error
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
	return errors.Join(problems...)
}

// errGone says that a draft of this run was removed: by a run that has published the version.
var errGone = fmt.Errorf("%w: the draft is not there any more", store.ErrTaken)

// listAssets returns all assets of a release, by their names.
func (s *Store) listAssets(ctx context.Context, id int64) (map[string]asset, error) {
	assets := map[string]asset{}
	for page := 1; page != 0; {
		var some []asset
		resp, err := s.get(ctx, "listing the files of a release", fmt.Sprintf("releases/%d/assets?per_page=%d&page=%d", id, pageSize, page), &some)
		if err != nil {
			return nil, err
		}
		for _, a := range some {
			assets[a.Name] = a
		}
		page = resp.NextPage
	}
	return assets, nil
}

// draftAssets is listAssets for a draft of this run, which a server that is behind the others may not
// know yet. The error is errGone where the draft was removed.
func (s *Store) draftAssets(ctx context.Context, draft int64) (map[string]asset, error) {
	for try := 1; ; try++ {
		assets, err := s.listAssets(ctx, draft)
		if !transport.HasStatus(err, http.StatusNotFound) {
			return assets, err
		}
		if err = s.orGone(ctx, draft, err); errors.Is(err, errGone) {
			return nil, err
		}
		if err := s.http.Again(ctx, try, err); err != nil {
			return nil, err
		}
	}
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, there *store.Snapshot, name string) ([]byte, error) {
	a, ok := stateOf(there).assets[name]
	if !ok {
		return nil, errors.New("it is not listed")
	}
	return s.download(ctx, a)
}

// assetDigest returns the digest of an asset, for which it is downloaded where the server does not say.
func (s *Store) assetDigest(ctx context.Context, a asset) (string, error) {
	if is := a.file(); is.SHA256 != "" || a.State != uploadedState {
		return is.SHA256, nil
	}
	data, err := s.download(ctx, a)
	return store.Digest(data), err
}

// sameBytes says whether an asset has these bytes.
func (s *Store) sameBytes(ctx context.Context, a asset, data []byte) (bool, error) {
	if a.State != uploadedState || a.Size != int64(len(data)) {
		return false, nil
	}
	sum, err := s.assetDigest(ctx, a)
	return sum == store.Digest(data), err
}

// download returns the bytes of an asset.
func (s *Store) download(ctx context.Context, a asset) ([]byte, error) {
	doing := "downloading " + a.Name
	if a.Size > transport.MaxBody {
		return nil, fmt.Errorf("%s: it has %d MiB, and at most %d are read", doing, a.Size>>20, transport.MaxBody>>20)
	}
	req, err := s.client.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/releases/assets/%d", s.owner, s.name, a.ID), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/octet-stream")
	var data bytes.Buffer
	resp, err := s.client.Do(ctx, req, io.Writer(&data))
	if err != nil {
		return nil, s.failure(doing, resp, err)
	}
	if int64(data.Len()) != a.Size {
		return nil, fmt.Errorf("%s: %d bytes came, and it has %d: run this again", doing, data.Len(), a.Size)
	}
	return data.Bytes(), nil
}

// deleteAsset removes an asset from a draft of this run.
func (s *Store) deleteAsset(ctx context.Context, a asset) error {
	resp, err := s.client.Repositories.DeleteReleaseAsset(ctx, s.owner, s.name, a.ID)
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil // it has been removed, by a try before this one whose answer was lost
	}
	return s.failure("removing the half of "+a.Name, resp, err)
}

// fill puts files into a draft of this run, and returns when every one of them has been compared.
// The error is errGone where the draft was removed meanwhile.
func (s *Store) fill(ctx context.Context, draft int64, files []release.File) error {
	var done atomic.Int32
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(transport.AtOnce)
	for _, f := range files {
		group.Go(func() error {
			if err := s.upload(groupCtx, draft, f); err != nil {
				return err
			}
			s.opts.Say(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, done.Add(1), len(files)))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return s.proveFilled(ctx, draft, files)
}

// proveFilled makes sure that a draft holds these files and nothing else, whatever each upload
// was answered. What is not right is sent again.
func (s *Store) proveFilled(ctx context.Context, draft int64, files []release.File) error {
	for try := 0; ; try++ {
		assets, err := s.draftAssets(ctx, draft)
		if err != nil {
			return err
		}
		wrong := ""
		for _, f := range files {
			a, listed := assets[f.Name]
			delete(assets, f.Name)
			if same, err := s.sameBytes(ctx, a, f.Data); err != nil {
				return s.orGone(ctx, draft, err)
			} else if same {
				continue
			}
			wrong = f.Name
			if !listed && try == 0 {
				continue // a list may be behind
			}
			if err := s.upload(ctx, draft, f); err != nil {
				return err
			}
		}
		for name := range assets {
			return fmt.Errorf("the draft has a file %s that is not of this release: something else adds files to drafts here; stop that and run this again", name)
		}
		if wrong == "" {
			return nil
		}
		if err := s.http.Again(ctx, try+1, fmt.Errorf("%s is not as it was uploaded: see what the server's status page says", wrong)); err != nil {
			return err
		}
	}
}

// upload puts one file into a draft of this run. Nobody else changes it, so that what is there
// under the name and is not right is half of an upload of this run, and may be removed.
func (s *Store) upload(ctx context.Context, draft int64, f release.File) error {
	for try := 1; ; try++ {
		a, err := s.send(ctx, draft, f)
		if err == nil && a.Name != f.Name {
			return fmt.Errorf("the server calls the file %s %s: rename it to something of letters, digits, '.', '-' and '_'", f.Name, a.Name)
		}
		if is := a.file(); err == nil && is.Size == int64(len(f.Data)) && (is.SHA256 == "" || is.SHA256 == store.Digest(f.Data)) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("uploading %s: the server has %d bytes of %d, in the state %q", f.Name, a.Size, len(f.Data), a.State)
		} else if fatal := s.uploadFatal(ctx, draft, err); fatal != nil {
			return fatal
		}
		there, clearErr := s.clear(ctx, draft, f)
		if clearErr != nil {
			return s.orGone(ctx, draft, clearErr)
		}
		if there {
			return nil
		}
		if err := s.http.Again(ctx, try, err); err != nil {
			return err
		}
	}
}

// uploadFatal returns the error that ends an upload, or nil where another try may help.
func (s *Store) uploadFatal(ctx context.Context, draft int64, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case transport.HasStatus(err, http.StatusNotFound):
		if gone := s.orGone(ctx, draft, err); errors.Is(gone, errGone) {
			return gone
		}
		return nil // it is there: a server behind the others does not know of it yet
	case alreadyExists(err, "name"):
		return nil
	case transport.IsRefusal(err):
		return err
	}
	return nil
}

// orGone returns errGone where the draft is not there any more, and the error otherwise.
func (s *Store) orGone(ctx context.Context, draft int64, err error) error {
	if !transport.HasStatus(err, http.StatusNotFound) || errors.Is(err, errGone) {
		return err
	}
	for try := range 3 {
		if try > 0 && s.opts.Network.Wait(ctx, transport.Pause(try)) != nil {
			return err
		}
		_, resp, getErr := s.client.Repositories.GetRelease(ctx, s.owner, s.name, draft)
		if getErr == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// send does one upload.
// Source: GitHub docs, "Upload a release asset".
func (s *Store) send(ctx context.Context, draft int64, f release.File) (asset, error) {
	path := fmt.Sprintf("repos/%s/%s/releases/%d/assets?name=%s", s.owner, s.name, draft, url.QueryEscape(f.Name))
	req, err := s.client.NewUploadRequest(path, bytes.NewReader(f.Data), int64(len(f.Data)), store.MediaType(f.Name))
	if err != nil {
		return asset{}, err
	}
	var a asset
	resp, err := s.client.Do(ctx, req, &a)
	return a, s.failure("uploading "+f.Name, resp, err)
}

// clear looks for what an upload whose end is not known left: it says whether the file is there as
// a whole, and removes it where it is not.
// Source: GitHub docs, "Upload a release asset": a failure may leave an asset in the state "starter",
// which is to be removed before the file can be sent again.
func (s *Store) clear(ctx context.Context, draft int64, f release.File) (bool, error) {
	assets, err := s.draftAssets(ctx, draft)
	if err != nil {
		return false, err
	}
	a, ok := assets[f.Name]
	if !ok {
		return false, nil
	}
	if same, err := s.sameBytes(ctx, a, f.Data); same || err != nil {
		return same, err
	}
	return false, s.deleteAsset(ctx, a)
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
