package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// mirrorSource publishes a release of the demo tree in the working folder to the folder source, pushes its image to a
// registry in memory, and returns the registry's host. source/clusterctl.yaml has a cert-manager without images.
func mirrorSource(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	pushRandom(t, host+"/demo/controller:v0.1.0")
	succeed(t, "build", "--version", "v0.1.0", "--image", "controller="+host+"/demo/controller", "--output", "built")
	succeed(t, "publish", "built", "--to", "source")
	dir, err := filepath.Abs("source")
	if err != nil {
		t.Fatal(err)
	}
	treetest.Write(t, dir, map[string]string{
		"cert-manager/v1.2.3/cert-manager.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: cert-manager}\n",
		"clusterctl.yaml":                       read(t, "source/clusterctl.yaml") + "cert-manager: {version: v1.2.3, url: \"" + dir + "/cert-manager/v1.2.3/cert-manager.yaml\"}\n",
	})
	return host
}

// TestMirror checks that real clusterctl reads a mirror after its push, with the image of the site's registry.
func TestMirror(t *testing.T) {
	dir := inDemo(t)
	host := mirrorSource(t)
	fetch := []string{"mirror", "--provider", "infrastructure-demo:v0.1.0", "--clusterctl-config", "source/clusterctl.yaml", "--to", "mirror"}
	got := execute(t, fetch...)
	if got.status != exitFine || !strings.Contains(got.stdout, "files: 8, images: 1\n  infrastructure-demo "+host+"/demo/controller:v0.1.0\n") ||
		!strings.Contains(got.stderr, "fetching image 1 of 1: "+host+"/demo/controller:v0.1.0\n") {
		t.Fatalf("%+v", got)
	}
	if got := execute(t, "mirror", "verify", "mirror"); got.status != exitFindings || !strings.Contains(got.stdout, "problem: clusterctl installs "+host) {
		t.Errorf("before the push: %+v", got)
	}
	if out := succeed(t, "mirror", "push", "mirror", "--registry", host+"/site"); !strings.Contains(out, "pushed to "+host+"/site, and verified") {
		t.Error(out)
	}
	if out := succeed(t, "mirror", "verify", "mirror"); !strings.HasPrefix(out, "verified: ") {
		t.Error(out)
	}
	components := newClusterctl(t, dir).run("generate", "provider", "--infrastructure", "demo:v0.1.0", "--config", "mirror/clusterctl.yaml")
	if want := "image: " + host + "/site/infrastructure-demo/controller:v0.1.0\n"; !strings.Contains(components, want) {
		t.Errorf("the components that clusterctl generates do not have %q", want)
	}
	if err := os.Remove("mirror/mirror.json"); err != nil {
		t.Fatal(err)
	}
	requireFailure(t, execute(t, "mirror", "push", "mirror", "--registry", host+"/site"), exitFailed, "is an incomplete mirror")
	requireFailure(t, execute(t, "mirror", "--to", "mirror"), exitUsage, "provider")
	requireFailure(t, execute(t, "mirror", "--to", "mirror", "--provider", "demo"), exitUsage, "name it as infrastructure-libvirt:v0.1.0")
	requireFailure(t, execute(t, "mirror", "push", "mirror", "--registry", "site"), exitUsage, "such as registry.example.com/capi")
}
