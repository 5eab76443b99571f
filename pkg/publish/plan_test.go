package publish

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

func TestPlanText(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	opts := Options{Replace: true}
	publish(t, root, opts, someRelease(libvirt, "v0.1.0", "old"), someRelease(libvirt, "v0.2.0-rc.0", "old"), someRelease(libvirt, "v0.3.0", "old"))
	plan, err := open(t, root, opts).Plan(t.Context(), []*release.Release{
		someRelease(libvirt, "v0.1.0", "old"), someRelease(libvirt, "v0.2.0-rc.0", "new"),
		someRelease(libvirt, "v0.3.0", "new"), someRelease(micro, "v0.1.0", ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `to ` + root + `
  unchanged  infrastructure-libvirt v0.1.0, 3 files
  replace    infrastructure-libvirt v0.2.0-rc.0, 3 files
             cluster-template-prod.yaml differs
             infrastructure-components.yaml differs
  refused    infrastructure-libvirt v0.3.0, 3 files
             cluster-template-prod.yaml differs
             infrastructure-components.yaml differs
  create     bootstrap-micro v0.1.0, 3 files
  update     clusterctl.yaml
             add micro (BootstrapProvider)
`
	if diff := cmp.Diff(want, plan.String()); diff != "" {
		t.Errorf("the plan's text (-want +got):\n%s", diff)
	}
}

func TestResultText(t *testing.T) {
	root := filepath.Join(t.TempDir(), "my repo")
	result := publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""))
	config := "'" + root + "/clusterctl.yaml'"
	want := `published infrastructure-libvirt v0.1.0 in ` + root + `/infrastructure-libvirt/v0.1.0
wrote ` + root + `/clusterctl.yaml: add libvirt (InfrastructureProvider)
to use it:
  clusterctl --config ` + config + ` generate provider --infrastructure libvirt:v0.1.0
  clusterctl --config ` + config + ` init --infrastructure libvirt:v0.1.0
  clusterctl --config ` + config + ` generate cluster my-cluster --infrastructure libvirt:v0.1.0 --flavor prod
`
	if diff := cmp.Diff(want, result.String()); diff != "" {
		t.Errorf("the result's text (-want +got):\n%s", diff)
	}
}

func TestClusterctlCommands(t *testing.T) {
	empty, err := release.New(micro, "v2.0.0", []release.File{{Name: "cluster-template.yaml"}})
	if err != nil {
		t.Fatal(err)
	}
	got := clusterctlCommands("", []*release.Release{
		someRelease(libvirt, "v0.1.0", ""), someRelease(libvirt, "v0.2.0-rc.0", ""), someRelease(libvirt, "v0.1.1", ""), empty,
	})
	want := []string{
		"clusterctl generate provider --infrastructure libvirt:v0.1.0",
		"clusterctl generate provider --infrastructure libvirt:v0.2.0-rc.0",
		"clusterctl generate provider --infrastructure libvirt:v0.1.1",
		"clusterctl generate provider --bootstrap micro:v2.0.0",
		"clusterctl init --infrastructure libvirt:v0.1.1 --bootstrap micro:v2.0.0",
		"clusterctl generate cluster my-cluster --infrastructure libvirt:v0.1.1 --flavor prod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"": "''", "/a/b-c_d.e:f": "/a/b-c_d.e:f", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "~": "'~'", "ü": "'ü'", "a\nb": "'a\nb'",
	} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}
