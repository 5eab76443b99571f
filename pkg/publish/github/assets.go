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
	"sync"
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

// errGone says that a draft of this run was removed: by a run that has published the version.
var errGone = fmt.Errorf("%w: the draft is not there any more", store.ErrTaken)

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

// fileOf returns an asset as a snapshot has it; the digest is empty on servers that do not know it.
func fileOf(a *asset) store.File {
	return store.File{Size: int64(a.GetSize()), SHA256: strings.TrimPrefix(strings.ToLower(a.Digest), "sha256:")}
}

// listAssets returns all assets of a release, by their names.
func (s *Store) listAssets(ctx context.Context, id int64) (map[string]*asset, error) {
	listed, _, err := pages[*asset](ctx, s, "listing the files of a release", fmt.Sprintf("releases/%d/assets", id))
	assets := map[string]*asset{}
	for _, a := range listed {
		assets[a.GetName()] = a
	}
	return assets, err
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
// It is empty for half an upload.
func (s *Store) assetDigest(ctx context.Context, a *asset) (string, error) {
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
func (s *Store) download(ctx context.Context, a *asset) ([]byte, error) {
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

// deleteAsset removes an asset from a draft of this run; that it is not there is no error.
func (s *Store) deleteAsset(ctx context.Context, a *asset) error {
	resp, err := s.client.Repositories.DeleteReleaseAsset(ctx, s.owner, s.name, a.GetID())
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil
	}
	return s.failure("removing the half of "+a.GetName(), resp, err)
}

// fill puts files into a draft of this run, and returns when every one of them has been compared. What an
// upload was answered does not count: what the list lacks or has otherwise is sent again. The error is
// errGone where the draft was removed meanwhile.
func (s *Store) fill(ctx context.Context, draft int64, files []release.File) error {
	missing := files
	for try := 1; ; try++ {
		last, err := s.uploadAll(ctx, draft, missing, len(files))
		if err != nil {
			return err
		}
		missing, err = s.lacking(ctx, draft, files)
		switch {
		case err == nil && len(missing) == 0:
			return nil
		case transport.HasStatus(err, http.StatusNotFound):
			if gone := s.gone(ctx, draft, err); gone != nil {
				return gone
			}
			last = err // a server behind the others does not know of the draft yet
		case err != nil:
			return err
		case last == nil:
			last = fmt.Errorf("%s is not as it was uploaded: see what the server's status page says", missing[0].Name)
		}
		if err := s.http.Again(ctx, try, last); err != nil {
			return err
		}
	}
}

// uploadAll sends files, several at once. It returns the last error of those that another try may help
// with, and the first of the others.
func (s *Store) uploadAll(ctx context.Context, draft int64, missing []release.File, all int) (last, err error) {
	var done atomic.Int32
	done.Store(int32(all - len(missing))) //nolint:gosec // a release has at most maxAssets
	var mu sync.Mutex
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(transport.AtOnce)
	for _, f := range missing {
		group.Go(func() error {
			err := s.send(groupCtx, draft, f)
			if err == nil {
				s.opts.Say(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, done.Add(1), all))
				return nil
			}
			mu.Lock()
			last = err
			mu.Unlock()
			return s.fatal(groupCtx, draft, err)
		})
	}
	return last, group.Wait()
}

// lacking returns those of the files that a draft of this run does not have with their bytes. Nobody else
// changes the draft, so that an asset that is not right is half of an upload of this run; it is removed.
// Source: GitHub docs, "Upload a release asset": a failure may leave an asset in the state "starter",
// which is to be removed before the file can be sent again.
func (s *Store) lacking(ctx context.Context, draft int64, files []release.File) ([]release.File, error) {
	assets, err := s.listAssets(ctx, draft)
	if err != nil {
		return nil, err
	}
	var missing []release.File
	for _, f := range files {
		a, listed := assets[f.Name]
		delete(assets, f.Name)
		sum := ""
		if listed && a.GetSize() == len(f.Data) {
			if sum, err = s.assetDigest(ctx, a); err != nil {
				return nil, err
			}
		}
		if sum == store.Digest(f.Data) {
			continue
		}
		missing = append(missing, f)
		if listed {
			if err := s.deleteAsset(ctx, a); err != nil {
				return nil, err
			}
		}
	}
	for name := range assets {
		return nil, fmt.Errorf("the draft has a file %s that is not of this release: something else adds files to drafts here; stop that and run this again", name)
	}
	return missing, nil
}

// fatal returns the error that ends the filling of a draft, or nil where another try may help.
func (s *Store) fatal(ctx context.Context, draft int64, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case transport.HasStatus(err, http.StatusNotFound):
		return s.gone(ctx, draft, err)
	case alreadyExists(err, "name"):
		return nil
	case transport.IsRefusal(err):
		return err
	}
	return nil
}

// gone returns errGone where a draft is not there any more, and nil otherwise.
func (s *Store) gone(ctx context.Context, draft int64, why error) error {
	for try := range 3 {
		if try > 0 && s.opts.Network.Wait(ctx, transport.Pause(try)) != nil {
			return why
		}
		_, resp, err := s.client.Repositories.GetRelease(ctx, s.owner, s.name, draft)
		if err == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", errGone, why)
}

// send does one upload.
// Source: GitHub docs, "Upload a release asset".
func (s *Store) send(ctx context.Context, id int64, f release.File) error {
	path := fmt.Sprintf("repos/%s/%s/releases/%d/assets?name=%s", s.owner, s.name, id, url.QueryEscape(f.Name))
	req, err := s.client.NewUploadRequest(path, bytes.NewReader(f.Data), int64(len(f.Data)), store.MediaType(f.Name))
	if err != nil {
		return err
	}
	resp, err := s.client.Do(ctx, req, nil)
	return s.failure("uploading "+f.Name, resp, err)
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
