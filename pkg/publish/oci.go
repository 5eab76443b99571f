package publish

import (
	"bytes"
	"context"
	"encoding/json"
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
	orasremote "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ociTarget is a repository of an OCI registry, which the Cluster API operator reads.
// Source: Cluster API operator, spec.fetchConfig.oci and internal/controller/oci_source.go.
var ociTarget = target{
	form:    "oci://HOST/REPOSITORY, for an OCI registry that the Cluster API operator reads",
	matches: func(text string) bool { return strings.HasPrefix(text, ociScheme) },
	open: func(text string, opts Options) (Publisher, error) {
		o, version, err := newOCI(text, opts)
		if err == nil && version != "" {
			err = fmt.Errorf("%q names a version: the tags are the releases' own; publish to %s", text, o.url())
		}
		if err != nil {
			return nil, err
		}
		return o, nil
	},
	read: readOCI,
}

const (
	ociScheme = "oci://"
	// ociArtifactType is the type of a release's manifest.
	ociArtifactType = "application/vnd.clusterctl-release.release.v1"
	// ociCreated stands for the time of a manifest, so that the same files make the same manifest.
	ociCreated = "1970-01-01T00:00:00Z"
	// maxManifest is how many bytes of a manifest are read.
	maxManifest = 4 << 20
)

// ociRepository publishes to a repository of a registry: each version is a manifest with a layer for
// each file, whose title is the file's name. What is pushed is not seen before its tag is set, which
// is one request, so that a version is there as a whole or not at all.
//
// A registry has no request by which only one of two publishers can set a tag. A tag that is there
// is never set again, and after a tag was set it is looked at once more: of two publishers at the
// same moment one finds the other's bytes there and says so. Only a registry with immutable tags
// keeps the first of the two.
type ociRepository struct {
	repository *orasremote.Repository
	opts       Options
}

// newOCI returns the repository that a URL names, and the version behind its colon, if any.
func newOCI(text string, opts Options) (*ociRepository, string, error) {
	name, version := strings.TrimPrefix(text, ociScheme), ""
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") && strings.Contains(name, "/") {
		name, version = name[:i], name[i+1:]
	}
	if strings.Contains(name, "@") {
		return nil, "", errors.New("the URL of a registry has an @ in it: take a user or a digest out; credentials are read from OCI_USERNAME and OCI_PASSWORD")
	}
	repository, err := orasremote.NewRepository(name)
	if err != nil || repository.Reference.Reference != "" {
		return nil, "", fmt.Errorf("%q is no repository of a registry: write %sHOST/REPOSITORY, in lower case", text, ociScheme)
	}
	host := repository.Reference.Host()
	login, err := ociCredential(opts)
	if err != nil {
		return nil, "", err
	}
	repository.PlainHTTP = isLoopback(strings.Split(host, ":")[0])
	repository.Client = &auth.Client{
		Client: guarded(&guard{keep: true}, opts.remote), Cache: auth.NewCache(), Credential: auth.StaticCredential(host, login),
		Header: http.Header{"User-Agent": {"clusterctl-release"}},
	}
	return &ociRepository{repository: repository, opts: opts}, version, nil
}

// ociCredential returns what to log in with: the variables have the names that the operator knows.
func ociCredential(opts Options) (auth.Credential, error) {
	user := os.Getenv("OCI_USERNAME")
	password, err := readToken(opts.TokenFile, "OCI_PASSWORD")
	if err != nil {
		return auth.EmptyCredential, err
	}
	if password != "" {
		if user == "" {
			user = "token" // registries that take a token look at no name
		}
		return auth.Credential{Username: user, Password: password}, nil
	}
	token, err := readToken("", "OCI_ACCESS_TOKEN")
	return auth.Credential{AccessToken: token}, err
}

// url returns the repository as it is published to.
func (o *ociRepository) url() string {
	return ociScheme + o.repository.Reference.Registry + "/" + o.repository.Reference.Repository
}

// place returns what stands for a version.
func (o *ociRepository) place(version string) string { return o.url() + ":" + version }

// layers returns the layers of files: by their names, and by those that the operator looks for. It
// takes other words for some types of providers, and prefers names with the provider and version.
// Source: Cluster API operator, internal/controller/oci_source.go, NewMapStore.
func layers(b *bundle, files []release.File) []ocispec.Descriptor {
	var all []ocispec.Descriptor
	add := func(title string, data []byte) {
		d := content.NewDescriptorFromBytes(mediaType(title), data)
		d.Annotations = map[string]string{ocispec.AnnotationTitle: title}
		if !slices.ContainsFunc(all, func(other ocispec.Descriptor) bool { return other.Annotations[ocispec.AnnotationTitle] == title }) {
			all = append(all, d)
		}
	}
	for _, f := range files {
		add(f.Name, f.Data)
	}
	for _, r := range b.releases {
		kind := strings.ReplaceAll(r.Provider.ClusterctlFlag(), "-", "")
		full := fmt.Sprintf("%s-%s-%s", kind, r.Provider.Name, r.Version)
		if f, ok := r.Components(); ok {
			add(kind+"-components.yaml", f.Data)
			add(full+"-components.yaml", f.Data)
		}
		if f, ok := r.File(release.MetadataFile); ok {
			add(full+"-"+release.MetadataFile, f.Data)
		}
	}
	return all
}

// failure says what an error of the registry means to the user; nil stays nil.
func (o *ociRepository) failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &serviceError{doing: doing, err: err, advice: "is the repository right, and may its user do this? Credentials are read from OCI_USERNAME and OCI_PASSWORD (or --token-file), or OCI_ACCESS_TOKEN"}
}

// manifest returns what a version's tag stands for, or false where there is no such tag.
func (o *ociRepository) manifest(ctx context.Context, version string) (ocispec.Manifest, bool, error) {
	var m ocispec.Manifest
	doing := "looking at " + o.place(version)
	desc, err := o.repository.Resolve(ctx, version)
	if errors.Is(err, errdef.ErrNotFound) {
		return m, false, nil
	}
	if err != nil {
		return m, false, o.failure(doing, err)
	}
	if desc.Size > maxManifest {
		return m, false, fmt.Errorf("%s: its manifest has %d bytes: it is none of a release", doing, desc.Size)
	}
	data, err := content.FetchAll(ctx, o.repository, desc)
	if err != nil {
		return m, false, o.failure(doing, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, false, fmt.Errorf("%s: its manifest can't be read: %w", doing, err)
	}
	return m, true, nil
}

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
	wanted := layers(b, b.files)
	for _, want := range wanted {
		title := want.Annotations[ocispec.AnnotationTitle]
		i := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.Annotations[ocispec.AnnotationTitle] == title })
		switch {
		case i < 0:
			differences = append(differences, release.Difference{File: title, Kind: "extra"})
		case m.Layers[i].Digest != want.Digest:
			differences = append(differences, release.Difference{File: title, Kind: "differs"})
		}
	}
	for _, l := range m.Layers {
		title := l.Annotations[ocispec.AnnotationTitle]
		if !made(title) && !slices.ContainsFunc(wanted, func(want ocispec.Descriptor) bool { return want.Annotations[ocispec.AnnotationTitle] == title }) {
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
		result.Warnings = append(result.Warnings, fmt.Sprintf("clusterctl reads nothing from registries; the Cluster API operator does: fetchConfig: {oci: %q}", strings.TrimPrefix(o.place(b.version), ociScheme)))
	}
	return result, nil
}

// publishBundle pushes a bundle and tags it, and returns what was done about it.
func (o *ociRepository) publishBundle(ctx context.Context, b *bundle) ([]ReleasePlan, error) {
	beside, err := madeFiles(b, source{repository: sourceOfPipeline(), commit: o.commit()}, o.opts)
	if err != nil {
		return nil, err
	}
	files := append(slices.Clone(b.files), beside...)
	desc, err := o.push(ctx, b, files)
	if err != nil {
		return nil, err
	}
	m, there, err := o.manifest(ctx, b.version)
	if err != nil {
		return nil, err
	}
	plans := o.planBundle(b, m, there)
	if err := (&Plan{Releases: plans}).Err(); err != nil || plans[0].Action == Unchanged {
		return plans, err
	}
	o.opts.tell("tagging " + b.version)
	if err := o.repository.Tag(ctx, desc, b.version); err != nil {
		return nil, o.failure("tagging "+b.version, err)
	}
	if err := o.opts.remote.wait(ctx, claimTime); err != nil {
		return nil, err
	}
	if m, there, err = o.manifest(ctx, b.version); err != nil {
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

// isRefusal says whether a registry understood a request and will not do it.
func isRefusal(err error) bool {
	var response *errcode.ErrorResponse
	return errors.As(err, &response) && response.StatusCode >= 400 && response.StatusCode < 500 && response.StatusCode != http.StatusRequestTimeout
}
