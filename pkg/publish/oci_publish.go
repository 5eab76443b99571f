package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	ocidigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Plan implements Publisher.
func (o *ociRepository) Plan(ctx context.Context, releases []*release.Release) (*Plan, error) {
	all, err := o.prepare(releases)
	if err != nil {
		return nil, err
	}
	return o.plan(ctx, all)
}

func (o *ociRepository) prepare(releases []*release.Release) ([]*bundle, error) {
	checked, err := candidates(releases)
	if err != nil {
		return nil, err
	}
	all, err := bundles(checked)
	for _, b := range all {
		if strings.Contains(b.version, "+") {
			err = errors.Join(err, fmt.Errorf("the version %s can't be a tag of a registry: a tag has no '+'", b.version))
		}
	}
	return all, err
}

func (o *ociRepository) plan(ctx context.Context, all []*bundle) (*Plan, error) {
	o.opts.tell("looking at " + o.url())
	plan := &Plan{Target: o.url()}
	for _, b := range all {
		m, there, err := o.manifest(ctx, b.version)
		if err != nil {
			return nil, err
		}
		plan.Releases = append(plan.Releases, o.planBundle(b, m, there)...)
	}
	return plan, nil
}

// planBundle compares a bundle with the manifest that is there for its version, if any.
func (o *ociRepository) planBundle(b *bundle, m ocispec.Manifest, there bool) []ReleasePlan {
	var differences []release.Difference
	names := map[string]bool{}
	for _, f := range append(slices.Clone(b.files), aliases(b)...) {
		names[f.Name] = true
		i := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.Annotations[ocispec.AnnotationTitle] == f.Name })
		_, isOwn := b.file(f.Name)
		switch {
		case !there, i < 0 && !isOwn: // an operator that is newer than the version looks for other names
		case i < 0:
			differences = append(differences, release.Difference{File: f.Name, Kind: "extra"})
		case m.Layers[i].Digest != ocidigest.FromBytes(f.Data):
			differences = append(differences, release.Difference{File: f.Name, Kind: "differs"})
		}
	}
	for _, l := range m.Layers {
		if title := l.Annotations[ocispec.AnnotationTitle]; !made(title) && !names[title] {
			differences = append(differences, release.Difference{File: title, Kind: "missing"})
		}
	}
	return b.plans(o.place(b.version), there, differences, o.opts.Replace)
}

// Publish implements Publisher.
func (o *ociRepository) Publish(ctx context.Context, releases []*release.Release) (*Result, error) {
	all, err := o.prepare(releases)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, publishTime, fmt.Errorf("publishing took more than %s", publishTime))
	defer cancel()
	plan, err := o.plan(ctx, all)
	if err == nil {
		err = plan.Err()
	}
	if err != nil {
		return nil, err
	}
	result := &Result{Plan: *plan}
	result.Releases = nil
	for _, b := range all {
		done, err := o.publishBundle(ctx, b)
		if err != nil {
			return nil, err
		}
		result.Releases = append(result.Releases, done...)
		if err := o.readBack(ctx, b); err != nil {
			return nil, err
		}
	}
	result.Usage = fmt.Sprintf("for the Cluster API operator, as clusterctl reads nothing from registries:\n  spec: {version: VERSION, fetchConfig: {oci: %q}}\n", o.operatorURL())
	return result, nil
}

// publishBundle pushes a bundle and tags it, and returns what was done about it.
func (o *ociRepository) publishBundle(ctx context.Context, b *bundle) ([]ReleasePlan, error) {
	beside, err := madeFiles(b, source{repository: sourceOfPipeline(), commit: o.commit()}, o.opts)
	if err != nil {
		return nil, err
	}
	desc, err := o.push(ctx, b, append(slices.Clone(b.files), beside...))
	if err != nil {
		return nil, err
	}
	plans, tagged, err := o.tag(ctx, b, desc)
	if err != nil || !tagged {
		return plans, err
	}
	if err := o.opts.remote.wait(ctx, 2*tagTime); err != nil {
		return nil, err
	}
	m, there, err := o.manifest(ctx, b.version)
	if err != nil {
		return nil, err
	}
	strict := *o
	strict.opts.Replace = false // what is there now has to be this
	after := strict.planBundle(b, m, there)
	if after[0].Action == Create {
		return nil, fmt.Errorf("%s was tagged, and has no tag now: something removes tags; run this again", o.place(b.version))
	}
	return plans, (&Plan{Releases: after}).Err()
}

// tag makes the tag of a bundle stand for a manifest, unless it stands for other bytes. It returns
// what the first look says there was to do, and whether the tag may have been set by this publisher.
func (o *ociRepository) tag(ctx context.Context, b *bundle, desc ocispec.Descriptor) (plans []ReleasePlan, tagged bool, err error) {
	manifest, err := content.FetchAll(ctx, o.repository, desc)
	if err != nil {
		return nil, false, o.failure("reading the manifest of "+b.version+" back", err)
	}
	var last error
	for try := range stepTries {
		if try > 0 {
			if err := o.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return nil, false, err
			}
		}
		var now []ReleasePlan
		if now, last = o.lookOnce(ctx, b); last == nil {
			if plans == nil {
				plans = now
			}
			if err := (&Plan{Releases: now}).Err(); err != nil || now[0].Action == Unchanged {
				return plans, tagged, err
			}
			o.opts.tell("tagging " + b.version)
			tagged = true
			last = o.setTag(ctx, b.version, desc, manifest)
		}
		if last == nil {
			return plans, tagged, nil
		}
		if ctx.Err() != nil || isRefusal(last) {
			// A registry with immutable tags refuses the second of two: what is there says which.
			if now, err := o.lookOnce(ctx, b); err == nil && now[0].Action != Create {
				return now, false, (&Plan{Releases: now}).Err()
			}
			break
		}
	}
	return nil, false, o.failure("tagging "+b.version, last)
}

// lookOnce compares a bundle with what its tag stands for, by requests that are sent once.
func (o *ociRepository) lookOnce(ctx context.Context, b *bundle) ([]ReleasePlan, error) {
	ctx, cancel := once(ctx, tagTime)
	defer cancel()
	m, there, err := o.manifest(ctx, b.version)
	if err != nil {
		return nil, err
	}
	return o.planBundle(b, m, there), nil
}

// setTag sets a tag by a request that is sent once.
func (o *ociRepository) setTag(ctx context.Context, version string, desc ocispec.Descriptor, manifest []byte) error {
	ctx, cancel := once(ctx, tagTime)
	defer cancel()
	return o.repository.PushReference(ctx, desc, bytes.NewReader(manifest), version)
}

// commit returns the commit that is released, as far as it is known.
func (o *ociRepository) commit() string {
	for _, commit := range []string{o.opts.Commit, os.Getenv("GITHUB_SHA"), os.Getenv("CI_COMMIT_SHA")} {
		if commit != "" {
			return commit
		}
	}
	return ""
}

// sourceOfPipeline returns the URL of the repository that a pipeline runs for, or "".
func sourceOfPipeline() string {
	if name := os.Getenv("GITHUB_REPOSITORY"); name != "" {
		return githubWeb() + "/" + name
	}
	return os.Getenv("CI_PROJECT_URL")
}

// push pushes files and their manifest, which nobody sees yet.
func (o *ociRepository) push(ctx context.Context, b *bundle, files []release.File) (ocispec.Descriptor, error) {
	byDigest := map[ocidigest.Digest][]byte{}
	for _, f := range files {
		byDigest[ocidigest.FromBytes(f.Data)] = f.Data
	}
	all := layers(b, files)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(uploadsAtOnce)
	for d, data := range byDigest {
		group.Go(func() error {
			desc := ocispec.Descriptor{MediaType: "application/octet-stream", Digest: d, Size: int64(len(data))}
			return o.pushOne(groupCtx, "uploading "+d.String(), func() error {
				if there, err := o.repository.Exists(groupCtx, desc); there || err != nil {
					return err
				}
				return o.repository.Push(groupCtx, desc, bytes.NewReader(data))
			})
		})
	}
	if err := group.Wait(); err != nil {
		return ocispec.Descriptor{}, err
	}
	var manifest ocispec.Descriptor
	err := o.pushOne(ctx, "uploading the manifest of "+b.version, func() (err error) {
		manifest, err = oras.PackManifest(ctx, o.repository, oras.PackManifestVersion1_1, ociArtifactType, oras.PackManifestOptions{
			Layers: all, ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: ociCreated, ocispec.AnnotationVersion: b.version},
		})
		return err
	})
	return manifest, err
}

// pushOne tries something that has the same effect however often it is done.
func (o *ociRepository) pushOne(ctx context.Context, doing string, do func() error) error {
	var err error
	for try := range stepTries {
		if try > 0 {
			if err := o.opts.remote.wait(ctx, pause(try-1)); err != nil {
				return err
			}
		}
		if err = do(); err == nil || errors.Is(err, errdef.ErrAlreadyExists) {
			return nil
		}
		if ctx.Err() != nil || isRefusal(err) {
			break
		}
	}
	return o.failure(doing, err)
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
