package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	orasremote "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

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
