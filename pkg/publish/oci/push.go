package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// tagTime is how long a look at a tag may take, and again the setting of it; slowTime is that on a
// registry that is too slow for it.
const tagTime, slowTime = 2 * time.Second, time.Minute

// staged is a version whose files were pushed, and which has no tag yet.
type staged struct {
	*store.Wanted
	there    *store.Snapshot
	desc     ocispec.Descriptor
	manifest []byte
	// time is how long a look at the tag may take, and again the setting of it.
	time time.Duration
	// tagged says that the tag may have been set by this publisher.
	tagged bool
}

// Stage implements store.Store: it pushes the files, which nobody sees yet, and makes their manifest.
func (s *Store) Stage(ctx context.Context, w *store.Wanted, there *store.Snapshot) (store.Staged, error) {
	st := &staged{Wanted: w, there: there, time: tagTime}
	var err error
	if st.desc, st.manifest, err = s.pack(ctx, w); err != nil {
		return nil, err
	}
	byDigest := map[ocidigest.Digest][]byte{ocispec.DescriptorEmptyJSON.Digest: ocispec.DescriptorEmptyJSON.Data}
	for _, f := range w.All {
		byDigest[ocidigest.FromBytes(f.Data)] = f.Data
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(transport.AtOnce)
	for d, data := range byDigest {
		group.Go(func() error {
			desc := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: d, Size: int64(len(data))}
			return s.push(groupCtx, "uploading "+d.String(), func() error {
				if there, err := s.repository.Exists(groupCtx, desc); there || err != nil {
					return err
				}
				return s.repository.Push(groupCtx, desc, bytes.NewReader(data))
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return st, nil
}

// pack makes the manifest of a version, whose bytes are the same for the same files.
func (s *Store) pack(ctx context.Context, w *store.Wanted) (desc ocispec.Descriptor, manifest []byte, err error) {
	local := memory.New()
	desc, err = oras.PackManifest(ctx, local, oras.PackManifestVersion1_1, artifactType, oras.PackManifestOptions{
		Layers: layers(slices.Concat(w.Files, w.All, s.Aliases(w.Version))), ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: created, ocispec.AnnotationVersion: w.Number},
	})
	if err == nil {
		manifest, err = content.FetchAll(ctx, local, desc)
	}
	if err != nil {
		return desc, nil, fmt.Errorf("making the manifest of %s: %w", w.Number, err)
	}
	return desc, manifest, nil
}

// layers returns the layers of files, each name once.
func layers(files []release.File) []ocispec.Descriptor {
	var all []ocispec.Descriptor
	for _, f := range files {
		if slices.ContainsFunc(all, func(other ocispec.Descriptor) bool { return other.Annotations[ocispec.AnnotationTitle] == f.Name }) {
			continue
		}
		d := content.NewDescriptorFromBytes(store.MediaType(f.Name), f.Data)
		d.Annotations = map[string]string{ocispec.AnnotationTitle: f.Name}
		all = append(all, d)
	}
	return all
}

// push tries something that has the same effect however often it is done.
func (s *Store) push(ctx context.Context, doing string, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || errors.Is(err, errdef.ErrAlreadyExists) {
			return nil
		}
		err = s.failure(doing, err)
		if ctx.Err() != nil || isRefusal(err) {
			return err
		}
		if err := s.http.Again(ctx, try, err); err != nil {
			return err
		}
	}
}

// Commit implements store.Store: it sets the tag, unless that is not what it was when it was looked at.
func (s *Store) Commit(ctx context.Context, x store.Staged) error {
	st, ok := x.(*staged)
	if !ok {
		return fmt.Errorf("staged is a %T", x)
	}
	for try := 1; ; try++ {
		err := s.tagOnce(ctx, st)
		if err == nil || errors.Is(err, store.ErrTaken) {
			return err
		}
		if ctx.Err() != nil || isRefusal(err) {
			// A registry with immutable tags refuses the second of two: what is there says which.
			if now, lookErr := s.lookOnce(ctx, st); lookErr == nil && now.Public && !sameFiles(now, st.there) {
				return fmt.Errorf("%w: %w", store.ErrTaken, err)
			}
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			st.time = slowTime
		}
		if err := s.http.Again(ctx, try, err); err != nil {
			return err
		}
	}
}

// tagOnce looks at a tag and sets it, by requests that are sent once.
func (s *Store) tagOnce(ctx context.Context, st *staged) error {
	now, err := s.lookOnce(ctx, st)
	if err != nil {
		return err
	}
	if own := st.isIn(now); own || !sameFiles(now, st.there) {
		if own && st.tagged {
			return nil // the answer to the try before was lost
		}
		return store.ErrTaken
	}
	s.opts.Say("tagging " + st.Number)
	ctx, cancel := transport.Once(ctx, st.time)
	defer cancel()
	st.tagged = true
	return s.failure("tagging "+st.Number, s.repository.PushReference(ctx, st.desc, bytes.NewReader(st.manifest), st.Number))
}

// lookOnce looks at a tag by requests that are sent once.
func (s *Store) lookOnce(ctx context.Context, st *staged) (*store.Snapshot, error) {
	ctx, cancel := transport.Once(ctx, st.time)
	defer cancel()
	return s.Look(ctx, st.Number)
}

// isIn says whether a tag stands for the staged files.
func (st *staged) isIn(now *store.Snapshot) bool {
	return now.Public && !slices.ContainsFunc(st.Files, func(f release.File) bool { return now.Files[f.Name].SHA256 != store.Digest(f.Data) })
}

// sameFiles says whether a tag stands for the same files at two looks.
func sameFiles(a, b *store.Snapshot) bool {
	if a.Public != b.Public || len(a.Files) != len(b.Files) {
		return false
	}
	for name, f := range a.Files {
		if b.Files[name] != f {
			return false
		}
	}
	return true
}

// Settle implements store.Store. Who has set a tag waits for longer than another publisher takes for a
// look and the setting, before he looks whether it is still his.
func (s *Store) Settle(ctx context.Context, v *store.Version, x store.Staged) ([]string, error) {
	st, ok := x.(*staged)
	if !ok || !st.tagged {
		return nil, nil
	}
	if err := s.opts.Network.Wait(ctx, 2*tagTime); err != nil {
		return nil, err
	}
	now, err := s.Look(ctx, v.Number)
	switch {
	case err != nil:
		return nil, err
	case !now.Public:
		return nil, fmt.Errorf("%s was tagged, and has no tag now: something removes tags; run this again", s.Place(v.Number))
	case !st.isIn(now):
		return nil, store.ErrTaken
	case st.time != tagTime:
		return []string{fmt.Sprintf("the registry took more than %s to answer: of two publishers of %s at the same moment both may have succeeded; look whether the tag has what you published (clusterctl release verify %s)", tagTime, v.Number, s.Place(v.Number))}, nil
	}
	return nil, nil
}

// uploadCodes are the errors of a registry that does not agree with the publisher on how far an upload
// has come: it ended it though the answer was lost, or has not yet seen what it needs.
// Source: OCI distribution specification, "Error Codes".
var uploadCodes = []string{
	errcode.ErrorCodeBlobUploadUnknown, errcode.ErrorCodeBlobUploadInvalid, errcode.ErrorCodeBlobUnknown, errcode.ErrorCodeManifestBlobUnknown,
	errcode.ErrorCodeDigestInvalid, errcode.ErrorCodeSizeInvalid,
}

// isRefusal says whether a registry understood a request and will not do it.
func isRefusal(err error) bool {
	var response *errcode.ErrorResponse
	if !errors.As(err, &response) || response.StatusCode < 400 || response.StatusCode >= 500 {
		return false
	}
	for _, e := range response.Errors {
		if slices.Contains(uploadCodes, e.Code) {
			return false
		}
	}
	return !slices.Contains([]int{http.StatusRequestTimeout, http.StatusRequestedRangeNotSatisfiable, http.StatusTooManyRequests}, response.StatusCode)
}
