package publish

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

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// uploadsAtOnce is how many files are sent at the same time.
	uploadsAtOnce = 8
	// githubPage is how many entries a page of a list has at most.
	githubPage = 100
	// maxAssets is how many assets a release may have.
	// Source: GitHub docs, "About releases", "Storage and bandwidth quotas".
	maxAssets = 1000
	// uploadedState is the state of an asset that is there as a whole.
	uploadedState = "uploaded"
)

// githubAsset is an asset of a release. The client's own type knows no digest.
// Source: GitHub docs, "REST API endpoints for release assets".
type githubAsset struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	State string `json:"state"`
	Size  int64  `json:"size"`
	// Digest is "sha256:..." or empty, on servers that do not know it.
	Digest string `json:"digest"`
}

// assetName are the names that GitHub keeps as they are; in others it replaces characters.
// Source: GitHub docs, "Upload a release asset", the notes.
var assetName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.+-]*$`)

// checkGitHubFiles refuses what GitHub would not take, or not under its name.
func checkGitHubFiles(b *bundle) error {
	var problems []error
	for _, f := range b.files {
		if !assetName.MatchString(f.Name) || strings.HasSuffix(f.Name, ".") {
			problems = append(problems, fmt.Errorf("%s: GitHub changes the name %q: use letters, digits, '.', '-', '_' and '+' only, with no '.' first or last", b.owner(f.Name), f.Name))
		}
		if len(f.Data) == 0 {
			problems = append(problems, fmt.Errorf("%s: %s is empty, and GitHub takes no empty files: take it out of the release", b.owner(f.Name), f.Name))
		}
	}
	if len(b.files) >= maxAssets {
		problems = append(problems, fmt.Errorf("%s has %d files, and a release on GitHub has at most %d", b.version, len(b.files), maxAssets))
	}
	return errors.Join(problems...)
}

// errGone says that a draft is not there any more.
var errGone = errors.New("the draft is not there any more")

// listAssets returns all assets of a release, by their names.
func (g *githubRepository) listAssets(ctx context.Context, id int64) (map[string]githubAsset, error) {
	assets := map[string]githubAsset{}
	for page := 1; page != 0; {
		path := fmt.Sprintf("repos/%s/%s/releases/%d/assets?per_page=%d&page=%d", g.owner, g.name, id, githubPage, page)
		req, err := g.client.NewRequest(http.MethodGet, path, nil)
		if err != nil {
			return nil, err
		}
		var some []githubAsset
		resp, err := g.client.Do(ctx, req, &some)
		if err != nil {
			return nil, g.failure("listing the files of a release", resp, err)
		}
		for _, a := range some {
			assets[a.Name] = a
		}
		page = resp.NextPage
	}
	return assets, nil
}

// draftAssets is listAssets for a draft of this run, which a server that is behind the others may not know yet.
// The error is errGone where the draft was removed.
func (g *githubRepository) draftAssets(ctx context.Context, draft int64) (map[string]githubAsset, error) {
	var last error
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return nil, err
			}
		}
		assets, err := g.listAssets(ctx, draft)
		if !hasStatus(err, http.StatusNotFound) {
			return assets, err
		}
		if last = g.orGone(ctx, draft, err); errors.Is(last, errGone) {
			break
		}
	}
	return nil, last
}

// sameBytes says whether an asset has these bytes: by its digest, or, where there is none, by
// downloading it.
func (g *githubRepository) sameBytes(ctx context.Context, a githubAsset, data []byte) (bool, error) {
	if a.State != uploadedState || a.Size != int64(len(data)) {
		return false, nil
	}
	if a.Digest != "" {
		return strings.EqualFold(a.Digest, "sha256:"+digest(data)), nil
	}
	there, err := g.download(ctx, a)
	if err != nil {
		return false, err
	}
	return bytes.Equal(there, data), nil
}

// download returns the bytes of an asset.
func (g *githubRepository) download(ctx context.Context, a githubAsset) ([]byte, error) {
	doing := "downloading " + a.Name
	if a.Size > maxBody {
		return nil, fmt.Errorf("%s: it has %d MiB, and at most %d are read", doing, a.Size>>20, maxBody>>20)
	}
	req, err := g.client.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/releases/assets/%d", g.owner, g.name, a.ID), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/octet-stream")
	var data bytes.Buffer
	resp, err := g.client.Do(ctx, req, io.Writer(&data))
	if err != nil {
		return nil, g.failure(doing, resp, err)
	}
	if int64(data.Len()) != a.Size {
		return nil, fmt.Errorf("%s: %d bytes came, and it has %d: run this again", doing, data.Len(), a.Size)
	}
	return data.Bytes(), nil
}

// deleteAsset removes an asset from a draft of this run.
func (g *githubRepository) deleteAsset(ctx context.Context, a githubAsset) error {
	resp, err := g.client.Repositories.DeleteReleaseAsset(ctx, g.owner, g.name, a.ID)
	if resp != nil && resp.StatusCode == http.StatusNotFound {
		return nil // it has been removed, by a try before this one whose answer was lost
	}
	return g.failure("removing the half of "+a.Name, resp, err)
}

// fill puts files into a draft of this run, and returns when every one of them has been compared.
// The error is errGone where the draft was removed meanwhile.
func (g *githubRepository) fill(ctx context.Context, draft int64, files []release.File) error {
	var done atomic.Int32
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(uploadsAtOnce)
	for _, f := range files {
		group.Go(func() error {
			if err := g.upload(groupCtx, draft, f); err != nil {
				return err
			}
			g.opts.tell(fmt.Sprintf("uploaded %s (%d of %d)", f.Name, done.Add(1), len(files)))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return g.proveFilled(ctx, draft, files)
}

// proveFilled makes sure that a draft holds these files and nothing else, whatever each upload
// was answered. What is not right is sent again.
func (g *githubRepository) proveFilled(ctx context.Context, draft int64, files []release.File) error {
	var wrong string
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try)); err != nil {
				return err
			}
		}
		assets, err := g.draftAssets(ctx, draft)
		if err != nil {
			return err
		}
		wrong = ""
		for _, f := range files {
			a, listed := assets[f.Name]
			delete(assets, f.Name)
			if same, err := g.sameBytes(ctx, a, f.Data); err != nil {
				return g.orGone(ctx, draft, err)
			} else if same {
				continue
			}
			wrong = f.Name
			if !listed && try == 0 {
				continue // a list may be behind
			}
			if err := g.upload(ctx, draft, f); err != nil {
				return err
			}
		}
		for name := range assets {
			return fmt.Errorf("the draft has a file %s that is not of this release: something else adds files to drafts here; stop that and run this again", name)
		}
		if wrong == "" {
			return nil
		}
	}
	return fmt.Errorf("%s is not as it was uploaded, after %d tries: see what the server's status page says, and run this again", wrong, stepTries)
}

// upload puts one file into a draft of this run. Nobody else changes it, so that what is there
// under the name and is not right is half of an upload of this run, and may be removed.
func (g *githubRepository) upload(ctx context.Context, draft int64, f release.File) error {
	var last error
	for try := range stepTries {
		if try > 0 {
			if err := g.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return err
			}
		}
		a, err := g.send(ctx, draft, f)
		if err == nil && a.Name != f.Name {
			return fmt.Errorf("the server calls the file %s %s: rename it to something of letters, digits, '.', '-' and '_'", f.Name, a.Name)
		}
		if err == nil && a.State == uploadedState && a.Size == int64(len(f.Data)) &&
			(a.Digest == "" || strings.EqualFold(a.Digest, "sha256:"+digest(f.Data))) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("uploading %s: the server has %d bytes of %d, in the state %q", f.Name, a.Size, len(f.Data), a.State)
		} else if fatal := g.uploadFatal(ctx, draft, err); fatal != nil {
			return fatal
		}
		last = err
		there, err := g.clear(ctx, draft, f)
		if err != nil {
			return g.orGone(ctx, draft, err)
		}
		if there {
			return nil
		}
	}
	return fmt.Errorf("%w; given up after %d tries: run this again", last, stepTries)
}

// uploadFatal returns the error that ends an upload, or nil where another try may help.
func (g *githubRepository) uploadFatal(ctx context.Context, draft int64, err error) error {
	var service *serviceError
	switch {
	case ctx.Err() != nil:
		return err
	case hasStatus(err, http.StatusNotFound):
		if gone := g.orGone(ctx, draft, err); errors.Is(gone, errGone) {
			return gone
		}
		return nil // it is there: a server behind the others does not know of it yet
	case alreadyExists(err, "name"):
		return nil
	case errors.As(err, &service) && service.status >= 400 && service.status < 500 && service.status != http.StatusRequestTimeout:
		return err
	}
	return nil
}

// orGone returns errGone where the draft is not there any more, and the error otherwise.
func (g *githubRepository) orGone(ctx context.Context, draft int64, err error) error {
	if !hasStatus(err, http.StatusNotFound) || errors.Is(err, errGone) {
		return err
	}
	for try := range 3 {
		if try > 0 && g.opts.remote.wait(ctx, pause(try)) != nil {
			return err
		}
		_, resp, getErr := g.client.Repositories.GetRelease(ctx, g.owner, g.name, draft)
		if getErr == nil || resp == nil || resp.StatusCode != http.StatusNotFound {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// send does one upload.
// Source: GitHub docs, "Upload a release asset".
func (g *githubRepository) send(ctx context.Context, draft int64, f release.File) (githubAsset, error) {
	path := fmt.Sprintf("repos/%s/%s/releases/%d/assets?name=%s", g.owner, g.name, draft, url.QueryEscape(f.Name))
	req, err := g.client.NewUploadRequest(path, bytes.NewReader(f.Data), int64(len(f.Data)), mediaType(f.Name))
	if err != nil {
		return githubAsset{}, err
	}
	var a githubAsset
	resp, err := g.client.Do(ctx, req, &a)
	return a, g.failure("uploading "+f.Name, resp, err)
}

// mediaType returns the media type that a file is uploaded with.
func mediaType(name string) string {
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return "application/yaml"
	}
	return "application/octet-stream"
}

// clear looks for what an upload whose end is not known left: it says whether the file is there as
// a whole, and removes it where it is not.
// Source: GitHub docs, "Upload a release asset": a failure may leave an asset in the state "starter",
// which is to be removed before the file can be sent again.
func (g *githubRepository) clear(ctx context.Context, draft int64, f release.File) (bool, error) {
	assets, err := g.draftAssets(ctx, draft)
	if err != nil {
		return false, err
	}
	a, ok := assets[f.Name]
	if !ok {
		return false, nil
	}
	if same, err := g.sameBytes(ctx, a, f.Data); same || err != nil {
		return same, err
	}
	return false, g.deleteAsset(ctx, a)
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
