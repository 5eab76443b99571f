package github

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// cleanUpTime is the time limit for removing unfinished work after a failure or an interrupt.
	cleanUpTime = 30 * time.Second
	// replaceTime is the time limit for the requests between which no release is public.
	replaceTime = 2 * time.Minute
	// draftLooks is the number of searches for a draft whose creation was not answered, before another one is created.
	// The pauses between them add up to at least half a minute: a list may be outdated, and people have to remove
	// superfluous drafts.
	draftLooks = 5
)

// staged is a version in a draft, or in the release to which it is added.
type staged struct {
	*store.Version
	is *state
	// commit is the commit to tag, or "".
	commit string
	// id is the draft, or the release to which the version is added.
	id int64
	// mark is the mark of the draft; empty if the version is added to a release.
	mark string
	host *githubRelease
}

func (s *repo) Stage(ctx context.Context, v *store.Version, there *store.Snapshot) (store.Staged, error) {
	st := &staged{Version: v, is: stateOf(there)}
	var err error
	if _, st.commit, err = s.commitToTag(ctx, v); err != nil {
		return nil, err
	}
	if st.host, err = st.is.host(v.Number); err != nil {
		return nil, err
	}
	if st.host != nil {
		return s.stageInto(ctx, st, there)
	}
	st.mark = draftMark + " " + rand.Text() + " " + s.opts.Network.Time().UTC().Format(time.RFC3339) + " -->"
	s.opts.Tell("making a draft of " + v.Number)
	if st.id, err = s.createDraft(ctx, st); err != nil {
		return nil, err
	}
	if err := s.filler(st.id, true).Put(ctx, v.Number, v.All); err != nil {
		s.discard(ctx, st.id)
		return nil, err
	}
	return st, nil
}

func (st *staged) release(body string, draft bool) *github.RepositoryRelease {
	r := &github.RepositoryRelease{
		TagName: &st.Number, Name: &st.Text.Title, Body: &body, Draft: &draft, Prerelease: github.Bool(!store.Stable(st.Number)),
	}
	if st.commit != "" {
		r.TargetCommitish = &st.commit
	}
	return r
}

// createDraft creates the draft of this run, with the run's mark, and returns its ID.
func (s *repo) createDraft(ctx context.Context, st *staged) (int64, error) {
	wanted := st.release(st.mark+"\n"+st.Text.Body, true)
	for try := 1; ; try++ {
		r, resp, err := s.client.Repositories.CreateRelease(ctx, s.owner, s.name, wanted)
		if err == nil {
			return r.GetID(), nil
		}
		err = s.failure("making a draft of "+st.Number, resp, err)
		if ctx.Err() != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
			defer cancel()
			if id, _ := s.findDraft(ctx, st.mark); id != 0 { // a draft that can't be found stays
				s.discard(ctx, id)
			}
			return 0, err
		}
		if transport.IsRefusal(err) {
			return 0, err
		}
		// The answer was lost, or came after the draft was created: then the draft is in the list with its mark.
		for look := range draftLooks {
			if err := s.opts.Network.Wait(ctx, transport.Pause(look+1)); err != nil {
				return 0, err
			}
			if id, err := s.findDraft(ctx, st.mark); id != 0 || err != nil {
				return id, err
			}
		}
		if err := s.http.Again(ctx, try, err); err != nil {
			return 0, err
		}
	}
}

// findDraft returns the ID of the draft with a mark, or 0 if it is not in the list.
func (s *repo) findDraft(ctx context.Context, mark string) (int64, error) {
	listed, err := s.listAtRest(ctx)
	for _, r := range listed {
		if r.GetDraft() && strings.HasPrefix(r.GetBody(), mark) {
			return r.GetID(), nil
		}
	}
	return 0, err
}

// discard removes a draft that can't become public any more. A draft that can't be removed stays like one of a killed
// run.
func (s *repo) discard(ctx context.Context, draft int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	_ = s.delete(ctx, draft, "removing a draft")
}

// tidy removes drafts of the version that is now public; a remaining one does no harm.
func (s *repo) tidy(ctx context.Context, drafts []*githubRelease) {
	for _, r := range drafts {
		_ = s.delete(ctx, r.GetID(), "")
	}
}

// delete removes a release; a missing one is no error.
func (s *repo) delete(ctx context.Context, id int64, doing string) error {
	resp, err := s.client.Repositories.DeleteRelease(ctx, s.owner, s.name, id)
	return transport.Unless(s.failure(doing, resp, err), http.StatusNotFound)
}

func (s *repo) edit(ctx context.Context, doing string, id int64, wanted *github.RepositoryRelease) error {
	_, resp, err := s.client.Repositories.EditRelease(ctx, s.owner, s.name, id, wanted)
	return s.failure(doing, resp, err)
}

func (s *repo) Commit(ctx context.Context, x store.Staged) error {
	st := x.(*staged) // Stage returned it
	switch {
	case st.host != nil:
		return s.commitInto(ctx, st)
	case s.opts.Draft:
		return s.leaveDraft(ctx, st)
	}
	if err := ctx.Err(); err != nil {
		s.discard(ctx, st.id)
		return err
	}
	replaced := st.is.aside
	if old := st.is.there; old != nil {
		// Between the next two requests no release is public, so an interrupt waits for them.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), replaceTime)
		defer cancel()
		replaced = append(slices.Clone(replaced), old)
		s.opts.Tell("making the " + st.Number + " that is replaced a draft")
		if err := s.edit(ctx, "making the release that is replaced a draft", old.GetID(), &github.RepositoryRelease{
			Draft: github.Bool(true), Body: github.String(asideMark + old.GetBody()),
		}); err != nil {
			defer s.discard(ctx, st.id)
			return s.putBack(ctx, old, st.is.listed, err)
		}
	}
	if err := s.makePublic(ctx, st); err != nil {
		return s.refused(ctx, st, replaced, err)
	}
	s.tidy(ctx, append(replaced, st.is.prepared...))
	return nil
}

// makePublic makes a draft of this run public. After the request, the draft may be public whatever the answer was. The
// error is store.ErrTaken if another release is public.
func (s *repo) makePublic(ctx context.Context, st *staged) error {
	s.opts.Tell("making " + st.Number + " public")
	wanted := st.release(st.Text.Body, false)
	wanted.MakeLatest = github.String(strconv.FormatBool(highestStable(st.is.listed, st.Number) == st.Number))
	err := s.edit(ctx, "making "+st.Number+" public", st.id, wanted)
	switch {
	case alreadyExists(err, "tag_name"):
		return fmt.Errorf("%w: it has published %s", store.ErrTaken, st.Number)
	case transport.HasStatus(err, http.StatusNotFound):
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// refused cleans up after a draft that could not be made public, and makes the release public again that it was to
// replace.
func (s *repo) refused(ctx context.Context, st *staged, replaced []*githubRelease, why error) error {
	if errors.Is(why, store.ErrTaken) {
		if there, err := s.awaitPublished(ctx, st.Number); err == nil && there.GetID() != st.id {
			s.discard(ctx, st.id)
		}
		return why
	}
	err := why
	if len(replaced) > 0 {
		err = s.putBack(ctx, replaced[len(replaced)-1], st.is.listed, why)
	}
	if transport.IsRefusal(why) {
		s.discard(ctx, st.id)
	}
	return err
}

// putBack makes a release public again that was to be replaced.
func (s *repo) putBack(ctx context.Context, old *githubRelease, listed []*githubRelease, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer cancel()
	version, body := old.GetTagName(), strings.TrimPrefix(old.GetBody(), asideMark)
	s.opts.Tell("making the previous " + version + " public again")
	err := s.edit(ctx, "making the previous release public again", old.GetID(), &github.RepositoryRelease{
		TagName: &version, Body: &body, Draft: github.Bool(false), Prerelease: github.Bool(old.GetPrerelease()),
		MakeLatest: github.String(strconv.FormatBool(!old.GetPrerelease() && highestStable(listed, version) == version)),
	})
	switch {
	case alreadyExists(err, "tag_name"):
		return fmt.Errorf("%w; another release of %s is public now: run this again", why, version)
	case err != nil:
		return fmt.Errorf("%w; the previous release is now the draft %s, because it could not be made public again (%w): run this again, or publish that draft by hand", why, old.GetHTMLURL(), err)
	}
	return fmt.Errorf("%w; the previous release is public again", why)
}

// leaveDraft removes the run's mark from its draft, which then belongs to people.
func (s *repo) leaveDraft(ctx context.Context, st *staged) error {
	err := s.edit(ctx, "leaving the draft of "+st.Number, st.id, &github.RepositoryRelease{Body: &st.Text.Body, Draft: github.Bool(true)})
	if transport.IsRefusal(err) {
		s.discard(ctx, st.id)
	}
	return err
}

// abandonedTime is the time after which the run that created a draft must have ended.
const abandonedTime = 90 * time.Minute

// Settle checks the public state. Since the version is public under another ID, none of the drafts that it removes can
// become public any more. It also corrects which version is the latest, if publishers of several versions ran at the
// same time.
func (s *repo) Settle(ctx context.Context, v *store.Version, x store.Staged) ([]string, error) {
	if s.opts.Draft {
		return nil, nil // nothing is public yet
	}
	there, err := s.awaitPublished(ctx, v.Number)
	if err != nil {
		return nil, err
	}
	id, mark := there.GetID(), ""
	if st, ok := x.(*staged); ok {
		id, mark = st.id, st.mark
	}
	// A list that contains the public release contains every draft that was created before.
	var listed []*githubRelease
	if _, err := s.http.Await(ctx, v.Number, func() (_ bool, err error) {
		listed, err = s.listAtRest(ctx)
		return slices.ContainsFunc(listed, func(r *githubRelease) bool { return r.GetID() == id && !r.GetDraft() }), err
	}); err != nil {
		return nil, err
	}
	if there.GetID() != id {
		return nil, fmt.Errorf("%s was published by something else at the same time, as another release: compare them on %s and remove one", v.Number, s.Place(v.Number))
	}
	var warnings []string
	for _, r := range listed {
		_, own := draftOf(r, v.Number)
		isMine := mark != "" && strings.HasPrefix(r.GetBody(), mark)
		switch {
		case r.GetID() == id || r.GetTagName() != v.Number:
		case !r.GetDraft() && x == nil: // the plan reports it
		case !r.GetDraft():
			warnings = append(warnings, fmt.Sprintf("%s is public more than once, and users get one or the other: compare %s and %s and remove one", v.Number, there.GetHTMLURL(), r.GetHTMLURL()))
		case !own || store.Replaceable(v.Number) && !isMine && !s.isAbandoned(r):
		default:
			s.opts.Tell("removing a draft that was left behind")
			if err := s.delete(ctx, r.GetID(), "removing a draft that was left behind"); err != nil {
				return nil, err
			}
		}
	}
	return warnings, s.correctLatest(ctx, listed, v.Number)
}

// awaitPublished returns the public release of a version that was just published.
func (s *repo) awaitPublished(ctx context.Context, version string) (there *githubRelease, err error) {
	isThere, err := s.http.Await(ctx, version, func() (_ bool, err error) {
		there, err = s.published(ctx, version)
		return there != nil, err
	})
	if err == nil && !isThere {
		err = fmt.Errorf("%s was published, but is not found under its tag: run this again; it first reads what exists", version)
	}
	return there, err
}

// isAbandoned reports whether the run that created a draft must have ended.
func (s *repo) isAbandoned(r *githubRelease) bool {
	if strings.HasPrefix(r.GetBody(), asideMark) {
		return true // another release is public in its place
	}
	fields := strings.Fields(strings.TrimPrefix(r.GetBody(), draftMark))
	if len(fields) < 2 {
		return false
	}
	made, err := time.Parse(time.RFC3339, fields[1])
	return err == nil && s.opts.Network.Time().Sub(made) > abandonedTime
}

// correctLatest marks the highest version as "latest" if a publisher of a lower one marked its own because it did not
// know the higher one.
func (s *repo) correctLatest(ctx context.Context, listed []*githubRelease, version string) error {
	highest := highestStable(listed, version)
	if !store.Stable(version) || highest == version {
		return nil
	}
	latest, resp, err := s.client.Repositories.GetLatestRelease(ctx, s.owner, s.name)
	if err != nil {
		return s.failure("looking for the latest release", resp, err)
	}
	if latest.GetTagName() != version {
		return nil
	}
	for _, r := range listed {
		if r.GetTagName() == highest && !r.GetDraft() {
			return s.edit(ctx, "naming "+highest+" the latest release", r.GetID(), &github.RepositoryRelease{MakeLatest: github.String("true")})
		}
	}
	return nil
}

// stageInto adds the files of a version to a release, without its metadata.
func (s *repo) stageInto(ctx context.Context, st *staged, there *store.Snapshot) (store.Staged, error) {
	st.id = st.host.GetID()
	if there.Claim != "" && there.Claim != release.Digest(st.All[0].Data) {
		return nil, fmt.Errorf("%s has files of another build of %s: remove them from it, and run this again", st.host.GetHTMLURL(), st.Number)
	}
	if st.Text.Title == st.Number && st.host.GetName() != "" {
		st.Text.Title = st.host.GetName()
	}
	return st, s.filler(st.id, false).Fill(ctx, st.Version)
}

// commitInto completes the files in a release, and makes it public if it is a draft.
func (s *repo) commitInto(ctx context.Context, st *staged) error {
	if err := s.filler(st.id, false).Complete(ctx, st.Version); err != nil {
		return err
	}
	switch {
	case st.host.GetDraft() && !s.opts.Draft:
		if err := s.makePublic(ctx, st); err != nil {
			return err
		}
	case st.host.GetBody() != st.Text.Body || st.host.GetName() != st.Text.Title:
		if err := s.edit(ctx, "writing the text of "+st.Number, st.id, &github.RepositoryRelease{Name: &st.Text.Title, Body: &st.Text.Body}); err != nil {
			return err
		}
	}
	s.tidy(ctx, st.is.prepared)
	return nil
}

// errGone means that a draft was removed: by a run that has published the version.
var errGone = fmt.Errorf("%w: the draft no longer exists", store.ErrTaken)

// gone returns errGone if a release no longer exists, and nil otherwise.
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

// assets are the files of one release: a draft of this run, or a release that people created for a version.
type assets struct {
	repo *repo
	id   int64
	// sums are the digests of downloaded assets, by their IDs.
	sums map[int64]string
}

// filler returns a Filler for a release. No other publisher changes the drafts of this run.
func (s *repo) filler(id int64, draft bool) *store.Filler {
	return &store.Filler{To: &assets{repo: s, id: id, sums: map[int64]string{}}, Client: s.http, Tell: s.opts.Tell, AtOnce: transport.AtOnce, Alone: draft}
}

// List lists the assets in the order of their uploads. An outdated server may not know the release yet.
//
// Source: GitHub docs, "Upload a release asset": a failure may leave an asset in the state "starter", which has to be
// removed before the file can be sent again.
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
		files = append(files, store.FlatFile{Name: one.GetName(), File: store.File{Size: int64(one.GetSize()), SHA256: sum}, ID: one.GetID()})
	}
	if transport.HasStatus(err, http.StatusNotFound) {
		return nil, a.repo.gone(ctx, a.id, err)
	}
	slices.SortFunc(files, func(x, y store.FlatFile) int { return cmp.Compare(x.ID, y.ID) })
	return files, err
}

// Send uploads a file.
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

// Remove removes an asset; a missing one is no error.
func (a *assets) Remove(ctx context.Context, _ string, f store.FlatFile) error {
	resp, err := a.repo.client.Repositories.DeleteReleaseAsset(ctx, a.repo.owner, a.repo.name, f.ID)
	return transport.Unless(a.repo.failure("removing the half of "+f.Name, resp, err), http.StatusNotFound)
}

// alreadyExists reports whether a server refused a request because the value of a field already exists.
func alreadyExists(err error, field string) bool {
	var response *github.ErrorResponse
	return errors.As(err, &response) && response.Response.StatusCode == http.StatusUnprocessableEntity &&
		slices.ContainsFunc(response.Errors, func(e github.Error) bool { return e.Code == "already_exists" && e.Field == field })
}
