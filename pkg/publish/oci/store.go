// Package oci publishes to repositories of OCI registries, which the Cluster API operator reads.
//
// Each version is a manifest with a layer for each file, whose title is the file's name. Pushed files are not visible
// before their tag is set, which is one request, so a version appears as a whole.
//
// A registry has no request with which only one of two publishers can set a tag. So an existing tag is never set again;
// reading and setting a tag has a time limit, see tagTime; and a publisher that has set a tag waits longer than that
// before it checks that the tag is unchanged. Of two publishers at the same moment, one then finds the other's bytes
// and reports it. If a registry is slower, publishing continues with longer limits, and a warning says that two
// publishers at the same moment may not notice each other. Only a registry with immutable tags reliably keeps the first
// of the two.
package oci

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

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	orasremote "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Kind is a repository of an OCI registry.
// Source: Cluster API operator, spec.fetchConfig.oci and internal/controller/oci_source.go.
var Kind = store.Kind{
	Form:     "oci://HOST/REPOSITORY, for an OCI registry that the Cluster API operator reads",
	ReadForm: ":VERSION",
	Matches:  func(text string) bool { return strings.HasPrefix(text, scheme) },
	Open:     open,
}

const (
	scheme = "oci://"
	// artifactType is the type of a release's manifest.
	artifactType = "application/vnd.clusterctl-release.release.v1"
	// created is the constant time in a manifest, so that the same files result in the same manifest.
	created = "1970-01-01T00:00:00Z"
	// maxManifest is the number of bytes of a manifest that are read.
	maxManifest = 4 << 20
)

type repo struct {
	store.Plain
	repository *orasremote.Repository
	http       *transport.Client
	opts       store.Options
}

// open returns the repository that a URL names, and the version behind its colon, if any.
func open(text string, opts store.Options) (store.Store, store.At, error) {
	name, version := strings.TrimPrefix(text, scheme), ""
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") && strings.Contains(name, "/") {
		name, version = name[:i], name[i+1:]
	}
	if strings.Contains(name, "@") {
		return nil, store.At{}, errors.New("the URL of a registry has an @ in it: take a user or a digest out; credentials are read from OCI_USERNAME and OCI_PASSWORD")
	}
	repository, err := orasremote.NewRepository(name)
	if err != nil || repository.Reference.Reference != "" {
		return nil, store.At{}, fmt.Errorf("%q does not name a repository of a registry: write %sHOST/REPOSITORY, in lower case", text, scheme)
	}
	host := repository.Reference.Host()
	login, err := credentialFor(host, opts)
	if err != nil {
		return nil, store.At{}, err
	}
	repository.PlainHTTP = transport.IsLoopback((&url.URL{Host: host}).Hostname())
	client := transport.New(transport.Options{KeepHeaders: true, Network: opts.Network, Report: opts.Report})
	repository.Client = &auth.Client{
		Client: client.HTTP, Cache: auth.NewCache(), Credential: login,
		Header: http.Header{"User-Agent": {"clusterctl-release"}},
	}
	return &repo{repository: repository, http: client, opts: opts}, store.At{Version: version}, nil
}

// credentialFor returns the credential for a registry: that of Options.TokenFile or of the variables, which have the
// operator's names, else that of `docker login`. It is not sent to other hosts.
func credentialFor(host string, opts store.Options) (auth.CredentialFunc, error) {
	password, err := store.ReadToken(opts.TokenFile, "OCI_PASSWORD")
	if err != nil {
		return nil, err
	}
	token, err := store.ReadToken("", "OCI_ACCESS_TOKEN")
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

func (s *repo) URL() string {
	return scheme + s.repository.Reference.Registry + "/" + s.repository.Reference.Repository
}

func (s *repo) Place(version string) string { return s.URL() + ":" + version }

// operatorURL returns the repository in the form of the operator's fetchConfig.oci. It has no tag, which would override
// spec.version.
//
// Source: Cluster API operator, internal/controller/oci_source.go, parseOCISource.
func (s *repo) operatorURL() string {
	name := strings.TrimPrefix(s.URL(), scheme)
	if s.repository.PlainHTTP {
		return "http://" + name
	}
	return name
}

// Aliases returns the components and metadata of a version under the names that the operator looks for: it prefers
// names with the provider and version, and uses its own words for some types of providers.
//
// Source: Cluster API operator, internal/controller/oci_source.go, NewMapStore, and GetType of the providers in
// api/v1alpha2; older operators write controlplane for control-plane.
func (s *repo) Aliases(v *store.Version) []release.File {
	var files []release.File
	for _, r := range v.Releases {
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

// operatorTypes returns the operator's words for the type of a provider, the current one first.
func operatorTypes(p release.Provider) []string {
	word := strings.ReplaceAll(p.ClusterctlFlag(), "-", "")
	if p.Type == clusterctlv1.ControlPlaneProviderType {
		return []string{p.ClusterctlFlag(), word}
	}
	return []string{word}
}

// failure adds advice for the user to an error of the registry; nil stays nil.
func (s *repo) failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	var answer *errcode.ErrorResponse
	status := 0
	if errors.As(err, &answer) {
		status = answer.StatusCode
	}
	return &transport.ServiceError{Doing: doing, Status: status, Err: err, Advice: "is the repository right, and may its user do this? Credentials are read from OCI_USERNAME and OCI_PASSWORD (or Options.TokenFile), from OCI_ACCESS_TOKEN, or from docker login"}
}

// Fits refuses versions that can't be a tag. Any user may push to some registries.
func (s *repo) Fits(all []*store.Version) error {
	var problems []error
	for _, v := range all {
		if strings.Contains(v.Number, "+") {
			problems = append(problems, fmt.Errorf("the version %s can't be a tag of a registry: a tag has no '+'", v.Number))
		}
	}
	return errors.Join(problems...)
}

func (s *repo) Use([]*store.Version) store.Use {
	return store.Use{Text: fmt.Sprintf("for the Cluster API operator, as clusterctl reads nothing from registries:\n  spec: {version: VERSION, fetchConfig: {oci: %q}}\n", s.operatorURL())}
}

func (s *repo) Reader(context.Context, string) (func(context.Context, string) ([]byte, error), string, error) {
	return nil, "clusterctl reads nothing from registries; the Cluster API operator does", nil
}

func (s *repo) Look(ctx context.Context, version string) (*store.Snapshot, error) {
	there := &store.Snapshot{Version: version, Files: map[string]store.File{}}
	m, isThere, err := s.manifest(ctx, version)
	if err != nil {
		return nil, err
	}
	there.Public, there.Complete, there.Own = isThere, isThere, m
	for _, l := range m.Layers {
		if title := l.Annotations[ocispec.AnnotationTitle]; title != "" {
			there.Files[title] = store.File{Size: -1, SHA256: l.Digest.Encoded()}
		}
	}
	return there, nil
}

// manifest returns the manifest of a version's tag, or false if the tag does not exist.
func (s *repo) manifest(ctx context.Context, version string) (ocispec.Manifest, bool, error) {
	var m ocispec.Manifest
	doing := "looking at " + s.Place(version)
	desc, err := s.repository.Resolve(ctx, version)
	if errors.Is(err, errdef.ErrNotFound) {
		return m, false, nil
	}
	if err != nil {
		return m, false, s.failure(doing, err)
	}
	if desc.Size > maxManifest {
		return m, false, fmt.Errorf("%s: its manifest has %d bytes, which is too large for a release: give the tag of a release", doing, desc.Size)
	}
	data, err := content.FetchAll(ctx, s.repository, desc)
	if err != nil {
		return m, false, s.failure(doing, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, false, fmt.Errorf("%s: its manifest can't be read: %w", doing, err)
	}
	return m, true, nil
}

func (s *repo) Read(ctx context.Context, there *store.Snapshot, name string) ([]byte, error) {
	m, _ := there.Own.(ocispec.Manifest) // Look returned it
	i := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.Annotations[ocispec.AnnotationTitle] == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no layer %s", name)
	}
	l := m.Layers[i]
	if l.Size > transport.MaxBody {
		return nil, fmt.Errorf("%s has %d MiB, and at most %d are read", name, l.Size>>20, transport.MaxBody>>20)
	}
	data, err := content.FetchAll(ctx, s.repository, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
	return data, s.failure("downloading "+name, err)
}

// Versions returns all tags of the repository, none if the repository does not exist yet.
func (s *repo) Versions(ctx context.Context) ([]string, error) {
	var tags []string
	err := s.repository.Tags(ctx, "", func(some []string) error { tags = append(tags, some...); return nil })
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	return tags, s.failure("listing the tags of "+s.URL(), err)
}
