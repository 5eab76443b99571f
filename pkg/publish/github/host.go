package github

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/go-github/v60/github"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// host is a release with files of others that people made for a version. Others see what is added to
// it, so that files come in the order of servers without drafts.
type host struct {
	store *Store
	id    int64
}

// List implements store.Flat.
func (h host) List(ctx context.Context, _ string) ([]store.FlatFile, error) {
	assets, err := h.store.listAssets(ctx, h.id)
	if err != nil {
		return nil, err
	}
	var files []store.FlatFile
	for _, a := range assets {
		sum, err := h.store.assetDigest(ctx, a)
		if err != nil {
			return nil, err
		}
		files = append(files, store.FlatFile{Name: a.GetName(), File: store.File{Size: int64(a.GetSize()), SHA256: sum}, Own: a})
	}
	slices.SortFunc(files, func(x, y store.FlatFile) int { return cmp.Compare(ownAsset(x).GetID(), ownAsset(y).GetID()) })
	return files, nil
}

func ownAsset(f store.FlatFile) *asset {
	a, _ := f.Own.(*asset) // List made it
	return a
}

// Send implements store.Flat.
func (h host) Send(ctx context.Context, _ string, f release.File) error {
	err := h.store.send(ctx, h.id, f)
	if alreadyExists(err, "name") {
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	}
	return err
}

// Remove implements store.Flat.
func (h host) Remove(ctx context.Context, _ string, f store.FlatFile) error {
	return h.store.deleteAsset(ctx, ownAsset(f))
}

// RemoveVersion implements store.Flat. The release is somebody else's.
func (h host) RemoveVersion(_ context.Context, version string) error {
	return fmt.Errorf("the release of %s has files of others, and is not removed", version)
}

// Download implements store.Flat.
func (h host) Download(ctx context.Context, _, name string) ([]byte, error) {
	assets, err := h.store.listAssets(ctx, h.id)
	if err != nil {
		return nil, err
	}
	return h.store.download(ctx, assets[name])
}

// claims returns what adds files to the release of a staged version.
func (s *Store) claims(st *staged) *store.Claims {
	return &store.Claims{Server: host{store: s, id: st.id}, Client: s.http, Tell: s.opts.Tell}
}

// stageInto adds the files of a version to a release, without its metadata.
func (s *Store) stageInto(ctx context.Context, st *staged, there *store.Snapshot) (store.Staged, error) {
	st.host = st.is.hosts[0]
	st.id = st.host.GetID()
	if there.Claim != "" && there.Claim != st.claim() {
		return nil, fmt.Errorf("%s has files of another build of %s: remove them from it, and run this again", st.host.GetHTMLURL(), st.Number)
	}
	if st.Text.Title == st.Number && st.host.GetName() != "" {
		st.Text.Title = st.host.GetName()
	}
	return st, s.claims(st).Fill(ctx, st.Wanted)
}

func (st *staged) claim() string { return store.Digest(st.All[0].Data) }

// commitInto completes what was added to a release, and makes it public if it is a draft.
func (s *Store) commitInto(ctx context.Context, st *staged) error {
	if err := s.claims(st).Complete(ctx, st.Wanted); err != nil {
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
	for _, r := range st.is.prepared {
		_ = s.delete(ctx, r.GetID(), "") // what it said is in the release now; a draft more is only untidy
	}
	return nil
}
