package publish

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const webHost = "releases.example.com"

// webServer returns the options for reading a folder that a web server serves below /capi.
func webServer(t *testing.T, root string) Options {
	t.Helper()
	clock := wire.NewClock()
	n := &wire.Network{Clock: clock, Hosts: map[string]http.Handler{webHost: http.StripPrefix("/capi", http.FileServer(http.Dir(root)))}}
	return Options{Network: transport.Network{Transport: n, Sleep: clock.Sleep, Now: clock.Now}}
}

// TestHTTPS reads a local repository from a web server.
func TestHTTPS(t *testing.T) {
	root := t.TempDir()
	plain, summed := someRelease(libvirt, "v0.1.0", ""), someLabelled("v0.2.0")
	publish(t, root, Options{}, plain, summed)
	folder := filepath.Join(root, "infrastructure-libvirt", "v0.2.0")
	if err := os.WriteFile(filepath.Join(folder, store.ChecksumsFile), (&store.Version{Files: summed.Files}).Checksums().Data, 0o644); err != nil {
		t.Fatal(err)
	}
	opts := webServer(t, root)
	base := "https://" + webHost + "/capi/infrastructure-libvirt/"
	for version, want := range map[string]struct {
		release *release.Release
		files   int
	}{"v0.1.0": {plain, 2}, "v0.2.0": {summed, 3}} { // no list names the template
		v, err := Verify(t.Context(), base+version+"/infrastructure-components.yaml", "", opts)
		if err != nil || len(v.Releases) != 1 || len(v.Releases[0].Files) != want.files || len(v.Problems) > 0 {
			t.Errorf("%s: %+v, %v", version, v, err)
			continue
		}
		for _, f := range v.Releases[0].Files {
			if file, _ := want.release.File(f.Name); string(file.Data) != string(f.Data) {
				t.Errorf("%s: read other bytes for %s", version, f.Name)
			}
		}
		if len(v.Notes) == 0 || !strings.Contains(v.Notes[0], "clusterctl reads nothing from "+webHost) {
			t.Errorf("%s: the notes are %q", version, v.Notes)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "NOTES.md"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(t.Context(), base+"v0.2.0/infrastructure-components.yaml", "", opts); err != nil || len(v.Problems) != 1 || !strings.Contains(v.Problems[0].Error(), "SHA256SUMS names other bytes for NOTES.md") {
		t.Errorf("a changed file: %+v, %v", v, err)
	}
	if err := os.Remove(filepath.Join(folder, "NOTES.md")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), base+"v0.2.0/infrastructure-components.yaml", opts); err == nil || !strings.Contains(err.Error(), "downloading NOTES.md") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestHTTPSErrors(t *testing.T) {
	opts := webServer(t, t.TempDir())
	base := "https://" + webHost + "/capi/infrastructure-libvirt/"
	for location, want := range map[string]string{
		"https://" + webHost:                                                      "isn't a release: from a web server",
		base + "v0.1.0":                                                           "isn't a release: from a web server",
		base + "v0.1.0/bootstrap-components.yaml":                                 "isn't a release: from a web server",
		base + "v0.1.0/infrastructure-components.yaml?x=y":                        "isn't a release: from a web server",
		base + "latest/infrastructure-components.yaml":                            "does not say which version is the latest",
		base + "0.1.0/infrastructure-components.yaml":                             "lacks the leading v",
		"https://me:pw@" + webHost + "/a/v1/infrastructure-components.yaml":       "has a user or password in it",
		"https://github.example.com/acme/capl/releases/v0.1.0/components.yaml":    "GITHUB_SERVER_URL",
		"http://" + webHost + "/capi/infrastructure-libvirt/v0.1.0/metadata.yaml": "isn't a place to read releases from",
	} {
		_, err := Read(t.Context(), location, opts)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: got %v, want %q", location, err, want)
		}
	}
	if _, err := Read(t.Context(), base+"v0.1.0/infrastructure-components.yaml", opts); !errors.Is(err, release.ErrNoRelease) {
		t.Errorf("a missing version: %v", err)
	}
	withToken := opts
	withToken.TokenFile = filepath.Join(t.TempDir(), "token")
	if _, err := Read(t.Context(), base+"v0.1.0/infrastructure-components.yaml", withToken); err == nil || !strings.Contains(err.Error(), "Options.TokenFile is for GitHub, GitLab and registries") {
		t.Errorf("with a token: %v", err)
	}
	var target *TargetError
	if _, err := Open(base, Options{}); !errors.As(err, &target) {
		t.Errorf("publishing there: %v", err)
	}
}
