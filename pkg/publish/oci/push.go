package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// tagTime is the time limit for reading a tag, and for setting it; slowTime is that for a registry that is too slow for
// it.
const tagTime, slowTime = 2 * time.Second, time.Minute

// staged is a version whose files were pushed, and which has no tag yet.
type staged struct {
	*store.Version
	there    *store.Snapshot
	desc     ocispec.Descriptor
	manifest []byte
	// time is the time limit for reading the tag, and for setting it.
	time time.Duration
	// tagged means that this publisher may have set the tag.
	tagged bool
}

// Stage pushes the files, which are not visible yet. Their manifest is sent only with its tag.
func (s *repo) Stage(ctx context.Context, v *store.Version, there *store.Snapshot) (store.Staged, error) {
	st := &staged{Version: v, there: there, time: tagTime}
	local := memory.New()
	var err error
	if st.desc, err = s.pack(ctx, v, local); err == nil {
		st.manifest, err = content.FetchAll(ctx, local, st.desc)
	}
	if err != nil {
		return nil, fmt.Errorf("making the manifest of %s: %w", v.Number, err)
	}
	for try := 1; ; try++ {
		err := oras.CopyGraph(ctx, local, s.repository, st.desc, oras.CopyGraphOptions{
			Concurrency: transport.AtOnce,
			PreCopy: func(_ context.Context, desc ocispec.Descriptor) error {
				if desc.Digest == st.desc.Digest {
					return oras.SkipNode
				}
				return nil
			},
		})
		if err == nil || errors.Is(err, errdef.ErrAlreadyExists) {
			return st, nil
		}
		err = s.failure("uploading the files of "+v.Number, err)
		if ctx.Err() == nil && !isRefusal(err) {
			err = s.http.Again(ctx, try, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// pack puts a version into a store in memory. The same files result in the same bytes of the manifest.
func (s *repo) pack(ctx context.Context, v *store.Version, local *memory.Store) (ocispec.Descriptor, error) {
	var layers []ocispec.Descriptor
	titles := map[string]bool{}
	for _, f := range slices.Concat(v.Files, v.All, s.Aliases(v)) {
		if titles[f.Name] {
			continue
		}
		titles[f.Name] = true
		d := content.NewDescriptorFromBytes(store.MediaType(f.Name), f.Data)
		d.Annotations = map[string]string{ocispec.AnnotationTitle: f.Name}
		layers = append(layers, d)
		if err := local.Push(ctx, d, bytes.NewReader(f.Data)); err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return d, err
		}
	}
	return oras.PackManifest(ctx, local, oras.PackManifestVersion1_1, artifactType, oras.PackManifestOptions{
		Layers: layers, ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: created, ocispec.AnnotationVersion: v.Number},
	})
}

// Commit sets the tag, unless it has changed since the look.
func (s *repo) Commit(ctx context.Context, x store.Staged) error {
	st := x.(*staged) // Stage made it
	for try := 1; ; try++ {
		err := s.tagOnce(ctx, st)
		if err == nil || errors.Is(err, store.ErrTaken) {
			return err
		}
		if ctx.Err() != nil || isRefusal(err) {
			// A registry with immutable tags refuses the second of two publishers: the tag shows which.
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

// tagOnce reads a tag and sets it, by requests that are sent once.
func (s *repo) tagOnce(ctx context.Context, st *staged) error {
	now, err := s.lookOnce(ctx, st)
	if err != nil {
		return err
	}
	if own := st.isIn(now); own || !sameFiles(now, st.there) {
		if own && st.tagged {
			return nil // the answer to the previous attempt was lost
		}
		return store.ErrTaken
	}
	s.opts.Tell("tagging " + st.Number)
	ctx, cancel := transport.Once(ctx, st.time)
	defer cancel()
	st.tagged = true
	return s.failure("tagging "+st.Number, s.repository.PushReference(ctx, st.desc, bytes.NewReader(st.manifest), st.Number))
}

func (s *repo) lookOnce(ctx context.Context, st *staged) (*store.Snapshot, error) {
	ctx, cancel := transport.Once(ctx, st.time)
	defer cancel()
	return s.Look(ctx, st.Number)
}

// isIn reports whether a tag names the staged files.
func (st *staged) isIn(now *store.Snapshot) bool {
	return now.Public && !slices.ContainsFunc(st.Files, func(f release.File) bool { return now.Files[f.Name].SHA256 != release.Digest(f.Data) })
}

// sameFiles reports whether a tag names the same files at two looks.
func sameFiles(a, b *store.Snapshot) bool {
	return a.Public == b.Public && maps.Equal(a.Files, b.Files)
}

// Settle checks that the tag stays. A publisher that has set a tag waits longer than another one needs for reading and
// setting it, and then checks that the tag is unchanged.
func (s *repo) Settle(ctx context.Context, v *store.Version, x store.Staged) ([]string, error) {
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

// uploadCodes are the errors of a registry that disagrees with the publisher about the state of an upload: it completed
// it although the answer was lost, or does not yet know the required blobs.
//
// Source: OCI distribution specification, "Error Codes".
var uploadCodes = []string{
	errcode.ErrorCodeBlobUploadUnknown, errcode.ErrorCodeBlobUploadInvalid, errcode.ErrorCodeBlobUnknown, errcode.ErrorCodeManifestBlobUnknown,
	errcode.ErrorCodeDigestInvalid, errcode.ErrorCodeSizeInvalid,
}

// isRefusal reports whether a registry understood a request and refuses it.
func isRefusal(err error) bool {
	var response *errcode.ErrorResponse
	if !errors.As(err, &response) || response.StatusCode < 400 || response.StatusCode >= 500 {
		return false
	}
	return !slices.ContainsFunc(response.Errors, func(e errcode.Error) bool { return slices.Contains(uploadCodes, e.Code) }) &&
		!slices.Contains([]int{http.StatusRequestTimeout, http.StatusRequestedRangeNotSatisfiable, http.StatusTooManyRequests}, response.StatusCode)
}
