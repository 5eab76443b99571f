package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	orasremote "oras.land/oras-go/v2/registry/remote"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// freeHost returns a local address on which nothing listens.
func freeHost(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// asOperator copies a version as the Cluster API operator does, and returns the files by their titles.
func asOperator(t *testing.T, host, name, version string) map[string]string {
	t.Helper()
	repository, err := orasremote.NewRepository(host + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	repository.PlainHTTP = true
	store := memory.New()
	desc, err := oras.Copy(t.Context(), repository, version, store, version, oras.CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := content.FetchAll(t.Context(), store, desc)
	if err != nil {
		t.Fatal(err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, l := range m.Layers {
		data, err := content.FetchAll(t.Context(), store, l)
		if err != nil {
			t.Fatal(err)
		}
		files[l.Annotations[ocispec.AnnotationTitle]] = string(data)
	}
	return files
}

// operatorReads returns the components and metadata that the Cluster API operator's own code reads from a
// registry. The URL is the value of spec.fetchConfig.oci.
func operatorReads(t *testing.T, url, kind, name, version string) (components, metadata string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), pinned.Tool(t, "operator"), url, kind, name, version, dir).CombinedOutput(); err != nil {
		t.Fatalf("the operator can't read %s %s of %s: %v: %s", kind, version, url, err, out)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	return read("components.yaml"), read("metadata.yaml")
}

// TestOCIForOperator checks that the operator's own code reads both versions of each of several providers
// from the URL that publishing prints.
func TestOCIForOperator(t *testing.T) {
	host := pinned.StartRegistry(t)
	place := "oci://" + host + "/acme/capl"
	quick := Options{Network: transport.Network{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
	providers := []release.Provider{libvirt, micro, {Name: "kubeadm", Type: clusterctlv1.ControlPlaneProviderType}, {Name: "hooks", Type: clusterctlv1.RuntimeExtensionProviderType}}
	kinds := []string{"infrastructure", "bootstrap", "control-plane", "runtimeextension"}
	var usage string
	for _, version := range []string{"v0.1.0", "v0.1.1"} {
		var releases []*release.Release
		for _, p := range providers {
			releases = append(releases, someRelease(p, version, version))
		}
		for _, r := range releases {
			for i := range r.Files {
				if r.Files[i].Name == "cluster-template-prod.yaml" {
					r.Files[i].Data = []byte("kind: Cluster\n") // they share it
				}
			}
			r.Record(someSource)
		}
		usage = publish(t, place, quick, releases...).Usage
	}
	_, url, _ := strings.Cut(usage, "oci: \"")
	url, _, _ = strings.Cut(url, "\"")
	for _, version := range []string{"v0.1.0", "v0.1.1"} {
		for i, p := range providers {
			want, _ := someRelease(p, version, version).Components()
			if components, meta := operatorReads(t, url, kinds[i], p.Name, version); components != string(want.Data) || meta != metadata {
				t.Errorf("%s %s: the operator reads %q and %q", kinds[i], version, components, meta)
			}
		}
	}
}

// TestOCI publishes to a real registry.
func TestOCI(t *testing.T) {
	host := pinned.StartRegistry(t)
	place := "oci://" + host + "/acme/capl"
	quick := Options{Commit: someCommit, Network: transport.Network{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
	t.Setenv("GITHUB_REPOSITORY", "someone/else") // the provenance comes from the build, not from the environment
	t.Setenv("GITHUB_SHA", otherCommit)
	kubeadm := release.Provider{Name: "kubeadm", Type: clusterctlv1.ControlPlaneProviderType}
	second, err := release.New(kubeadm, "v0.1.0", []release.File{{Name: "control-plane-components.yaml", Data: []byte("kind: Namespace\n")}, {Name: release.MetadataFile, Data: []byte(metadata)}})
	if err != nil {
		t.Fatal(err)
	}
	second.Record(someSource)
	both := []*release.Release{someLabelled("v0.1.0"), second}
	plan, err := open(t, place, quick).Plan(t.Context(), both)
	if err != nil || !strings.Contains(plan.String(), "create     infrastructure-libvirt v0.1.0, 3 files") || strings.Contains(plan.String(), "only in") {
		t.Fatalf("Plan = %v, %v", plan, err)
	}
	result := publish(t, place, quick, both...)
	if text := result.String(); !strings.Contains(text, "fetchConfig: {oci: \"http://"+host+"/acme/capl\"}") || strings.Contains(text, "warning") {
		t.Errorf("the result is %s", text)
	}
	files := asOperator(t, host, "acme/capl", "v0.1.0")
	components, _ := both[1].Components()
	for _, name := range []string{"metadata.yaml", "infrastructure-components.yaml", "infrastructure-libvirt-v0.1.0-metadata.yaml",
		"infrastructure-libvirt-v0.1.0-components.yaml", "controlplane-components.yaml", "controlplane-kubeadm-v0.1.0-components.yaml",
		"control-plane-components.yaml", "control-plane-kubeadm-v0.1.0-components.yaml", "control-plane-kubeadm-v0.1.0-metadata.yaml"} {
		if files[name] == "" {
			t.Errorf("the operator finds no %s among %v", name, slices.Sorted(maps.Keys(files)))
		}
	}
	if files["control-plane-kubeadm-v0.1.0-components.yaml"] != string(components.Data) {
		t.Error("the operator reads other components")
	}
	all, err := store.Versions(both)
	if err != nil {
		t.Fatal(err)
	}
	if claim, err := provenance.Check(t.Context(), []byte(files[store.ProvenanceFile]), "v0.1.0", all[0].Files, ""); err != nil || claim != (provenance.Claim{Repository: githubURL, Commit: someCommit}) {
		t.Errorf("the provenance claims %v: %v", claim, err)
	}
	if again := publish(t, place, quick, both...); again.Releases[0].Action != store.Unchanged {
		t.Errorf("publishing again: %s", again)
	}
	var conflict *ConflictError
	if _, err := open(t, place, quick).Publish(t.Context(), []*release.Release{someRelease(libvirt, "v0.1.0", "other")}); !errors.As(err, &conflict) {
		t.Errorf("other bytes: %v", err)
	}
	if after := asOperator(t, host, "acme/capl", "v0.1.0"); !maps.Equal(files, after) {
		t.Error("the refused release changed the version")
	}
	publish(t, place, quick, someLabelled("v0.2.0-rc.0"))
	replace := quick
	replace.Replace = true
	if result := publish(t, place, replace, someRelease(libvirt, "v0.2.0-rc.0", "new")); result.Releases[0].Action != store.Replace {
		t.Errorf("replacing: %s", result)
	}
	for location, want := range map[string]int{place + ":v0.1.0": 2, place + ":latest": 2} {
		v, err := Verify(t.Context(), location, "", quick)
		if err != nil || len(v.Releases) != want || len(v.Problems) > 0 {
			t.Errorf("%s: %+v, %v", location, v, err)
			continue
		}
		for _, r := range v.Releases {
			if i := slices.IndexFunc(both, func(b *release.Release) bool { return b.String() == r.String() }); i >= 0 && r.Provider == libvirt && len(both[i].Differences(r)) > 0 {
				t.Errorf("%s: read %v", location, both[i].Differences(r))
			}
		}
	}
	for location, want := range map[string]string{place + ":v0.9.0": "no release v0.9.0", place: "write " + place + ":VERSION"} {
		if _, err := Read(t.Context(), location, quick); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", location, err, want)
		}
	}
}

// TestOCICredentials checks the credentials that a registry gets: the variables take precedence over docker login,
// whose credentials are only for their host.
func TestOCICredentials(t *testing.T) {
	var logins []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		logins = append(logins, user+":"+password)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	docker := t.TempDir()
	t.Setenv("DOCKER_CONFIG", docker)
	for name, tc := range map[string]struct{ config, password, want string }{
		"docker login":                 {config: fmt.Sprintf(`{"auths": {%q: {"auth": "bWU6c2VjcmV0"}}}`, host), want: "me:secret"},
		"docker login to another host": {config: `{"auths": {"registry.example.com": {"auth": "bWU6c2VjcmV0"}}}`},
		"both":                         {config: fmt.Sprintf(`{"auths": {%q: {"auth": "bWU6c2VjcmV0"}}}`, host), password: "own", want: "token:own"},
	} {
		logins = nil
		write(t, filepath.Join(docker, "config.json"), tc.config)
		t.Setenv("OCI_PASSWORD", tc.password)
		_, err := open(t, "oci://"+host+"/acme/capl", Options{}).Plan(t.Context(), []*release.Release{someLabelled("v0.1.0")})
		if tc.want == "" {
			if err == nil || len(logins) > 0 {
				t.Errorf("%s: the registry got %q: %v", name, logins, err)
			}
			continue
		}
		if err != nil || len(logins) == 0 || logins[0] != tc.want {
			t.Errorf("%s: the registry got %q, want %s: %v", name, logins, tc.want, err)
		}
	}
	write(t, filepath.Join(docker, "config.json"), "{")
	t.Setenv("OCI_PASSWORD", "")
	if _, err := Open("oci://"+host+"/acme/capl", Options{}); err == nil || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("an unreadable configuration: %v", err)
	}
}

func TestOCIURLs(t *testing.T) {
	for text, want := range map[string]string{
		"oci://registry.example.com":          "does not name a repository",
		"oci://registry.example.com/UPPER":    "does not name a repository",
		"oci://me:pw@registry.example.com/a":  "has an @ in it",
		"oci://registry.example.com/a:v0.1.0": "is more than a repository",
	} {
		_, err := Open(text, Options{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	plus := someRelease(libvirt, "v0.1.0+build.1", "")
	if _, err := open(t, "oci://registry.example.com:5000/a/b", Options{}).Plan(t.Context(), []*release.Release{plus}); err == nil || !strings.Contains(err.Error(), "can't be a tag") {
		t.Errorf("a version with build metadata: %v", err)
	}
}

// TestOCISlow checks that publishing succeeds with a warning if the registry answers too slowly to detect a
// second publisher.
func TestOCISlow(t *testing.T) {
	slow := &slowTags{base: http.DefaultTransport, tags: 2}
	place := "oci://" + pinned.StartRegistry(t) + "/acme/capl"
	opts := Options{Network: transport.Network{Transport: slow, Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
	result := publish(t, place, opts, someLabelled("v0.1.0"))
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "the registry took more than 2s to answer") {
		t.Errorf("the warnings are %q", result.Warnings)
	}
	if slow.cut == 0 {
		t.Error("no request took too long")
	}
}

// slowTags delays the first requests with a short timeout until they time out.
type slowTags struct {
	base      http.RoundTripper
	tags, cut int
}

// RoundTrip implements http.RoundTripper.
func (s *slowTags) RoundTrip(r *http.Request) (*http.Response, error) {
	if end, ok := r.Context().Deadline(); ok && time.Until(end) < 5*time.Second && s.cut < s.tags {
		s.cut++
		return nil, context.DeadlineExceeded
	}
	return s.base.RoundTrip(r)
}
