package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	orasremote "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

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
	// tagTime is how long a look at a tag may take, and again the setting of it.
	tagTime = 3 * time.Second
	// maxManifest is how many bytes of a manifest are read.
	maxManifest = 4 << 20
)

// ociRepository publishes to a repository of a registry: each version is a manifest with a layer for
// each file, whose title is the file's name. What is pushed is not seen before its tag is set, which
// is one request, so that a version is there as a whole or not at all.
//
// A registry has no request by which only one of two publishers can set a tag. A tag that is there
// is never set again; a look and the setting that follows it take at most so long together, see
// tagTime; and who has set a tag waits for longer than that before he looks whether it is still his.
// So of two publishers at the same moment one finds the other's bytes there and says so, as long as a
// registry does not do what it was asked for after the one who asked has given up. Only a registry
// with immutable tags keeps the first of the two for sure.
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
	login, err := ociCredential(host, opts)
	if err != nil {
		return nil, "", err
	}
	repository.PlainHTTP = isLoopback((&url.URL{Host: host}).Hostname())
	repository.Client = &auth.Client{
		Client: guarded(&guard{keep: true}, opts.remote), Cache: auth.NewCache(), Credential: login,
		Header: http.Header{"User-Agent": {"clusterctl-release"}},
	}
	return &ociRepository{repository: repository, opts: opts}, version, nil
}

// ociCredential returns what to log in to a registry with: that of --token-file or of the variables, which
// have the operator's names, else that of `docker login`. Other hosts get nothing.
func ociCredential(host string, opts Options) (auth.CredentialFunc, error) {
	password, err := readToken(opts.TokenFile, "OCI_PASSWORD")
	if err != nil {
		return nil, err
	}
	token, err := readToken("", "OCI_ACCESS_TOKEN")
	if err != nil {
		return nil, err
	}
	login := auth.Credential{AccessToken: token}
	if password != "" {
		// Registries that take a token ignore the user's name.
		login = auth.Credential{Username: cmp.Or(os.Getenv("OCI_USERNAME"), "token"), Password: password}
	}
	if login != auth.EmptyCredential {
		return auth.StaticCredential(host, login), nil
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of docker login: %w: correct the file, or set OCI_USERNAME and OCI_PASSWORD", err)
	}
	ofDocker := credentials.Credential(store)
	return func(ctx context.Context, hostport string) (auth.Credential, error) {
		if hostport != host {
			return auth.EmptyCredential, nil
		}
		return ofDocker(ctx, hostport)
	}, nil
}

// url returns the repository as it is published to.
func (o *ociRepository) url() string {
	return ociScheme + o.repository.Reference.Registry + "/" + o.repository.Reference.Repository
}

// operatorURL returns the repository as the operator's fetchConfig.oci names it. It has no tag, which would
// hold the operator to one version whatever its spec.version says.
// Source: Cluster API operator, internal/controller/oci_source.go, parseOCISource.
func (o *ociRepository) operatorURL() string {
	name := strings.TrimPrefix(o.url(), ociScheme)
	if o.repository.PlainHTTP {
		return "http://" + name
	}
	return name
}

// place returns what stands for a version.
func (o *ociRepository) place(version string) string { return o.url() + ":" + version }

// layers returns the layers of files, by their names, and those of aliases.
func layers(b *bundle, files []release.File) []ocispec.Descriptor {
	var all []ocispec.Descriptor
	for _, f := range append(slices.Clone(files), aliases(b)...) {
		if slices.ContainsFunc(all, func(other ocispec.Descriptor) bool { return other.Annotations[ocispec.AnnotationTitle] == f.Name }) {
			continue
		}
		d := content.NewDescriptorFromBytes(mediaType(f.Name), f.Data)
		d.Annotations = map[string]string{ocispec.AnnotationTitle: f.Name}
		all = append(all, d)
	}
	return all
}

// aliases returns the components and metadata of a bundle by the names that the operator looks for. It
// prefers names with the provider and version, and has a word of its own for some types of providers.
// Source: Cluster API operator, internal/controller/oci_source.go, NewMapStore, and GetType of the
// providers in api/v1alpha2; older operators write controlplane for control-plane.
func aliases(b *bundle) []release.File {
	var files []release.File
	for _, r := range b.releases {
		for _, kind := range operatorTypes(r.Provider) {
			full := fmt.Sprintf("%s-%s-%s-", kind, r.Provider.Name, r.Version)
			if f, ok := r.Components(); ok {
				files = append(files, release.File{Name: kind + "-components.yaml", Data: f.Data}, release.File{Name: full + "components.yaml", Data: f.Data})
			}
			if f, ok := r.File(release.MetadataFile); ok {
				files = append(files, release.File{Name: full + release.MetadataFile, Data: f.Data})
			}
		}
	}
	return files
}

// operatorTypes returns the operator's words for the type of a provider, the present one first.
func operatorTypes(p release.Provider) []string {
	word := strings.ReplaceAll(p.ClusterctlFlag(), "-", "")
	if p.Type == clusterctlv1.ControlPlaneProviderType {
		return []string{p.ClusterctlFlag(), word}
	}
	return []string{word}
}

// failure says what an error of the registry means to the user; nil stays nil.
func (o *ociRepository) failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &serviceError{doing: doing, err: err, advice: "is the repository right, and may its user do this? Credentials are read from OCI_USERNAME and OCI_PASSWORD (or --token-file), from OCI_ACCESS_TOKEN, or from docker login"}
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
