package publish

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestVerifyFolder checks that folders are also verified with clusterctl's client, which refuses some that
// Read accepts.
func TestVerifyFolder(t *testing.T) {
	label := func(root string) string { return filepath.Join(root, "infrastructure-libvirt") }
	for name, test := range map[string]struct {
		change  func(t *testing.T, root string)
		folder  string // below the root
		problem string
	}{
		"a repository":       {},
		"a provider's":       {folder: "infrastructure-libvirt"},
		"a version":          {folder: "infrastructure-libvirt/v0.1.0"},
		"clusterctl's URL":   {folder: "infrastructure-libvirt/v0.1.0/infrastructure-components.yaml"},
		"no clusterctl.yaml": {change: func(_ *testing.T, root string) { _ = os.Remove(filepath.Join(root, configFile)) }},
		"an entry for another folder": {change: func(t *testing.T, root string) {
			write(t, filepath.Join(root, configFile), "providers:\n- name: libvirt\n  type: InfrastructureProvider\n  url: file:///elsewhere/infrastructure-libvirt/latest/infrastructure-components.yaml\n")
		}, problem: "clusterctl can't read it: with "},
		"an entry for a server": {change: func(t *testing.T, root string) {
			write(t, filepath.Join(root, configFile), "providers:\n- name: libvirt\n  type: InfrastructureProvider\n  url: https://github.com/acme/capl/releases/latest/infrastructure-components.yaml\n")
		}, problem: "clusterctl reads https://github.com/acme/capl"},
		"no entry": {change: func(t *testing.T, root string) {
			write(t, filepath.Join(root, configFile), "providers: []\n")
		}, problem: "has no entry for libvirt"},
		"a newer version that is not complete": {change: func(t *testing.T, root string) {
			write(t, filepath.Join(label(root), "v0.2.0", "infrastructure-components.yaml"), "a")
		}, folder: "infrastructure-libvirt/v0.1.0", problem: "the newest needs a metadata.yaml"},
		"a version that is a link": {change: func(t *testing.T, root string) {
			_ = os.Remove(filepath.Join(root, configFile))
			if err := os.Rename(filepath.Join(label(root), "v0.1.0"), filepath.Join(root, "files")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../files", filepath.Join(label(root), "v0.1.0")); err != nil {
				t.Fatal(err)
			}
		}, folder: "infrastructure-libvirt/v0.1.0", problem: "is the version's folder a link?"},
		"a name that clusterctl refuses": {change: func(t *testing.T, root string) {
			_ = os.Remove(filepath.Join(root, configFile))
			if err := os.Rename(label(root), filepath.Join(root, "infrastructure-Lib_virt")); err != nil {
				t.Fatal(err)
			}
		}, problem: "clusterctl can't read it"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			publish(t, root, Options{}, someRelease(libvirt, "v0.1.0", ""))
			if test.change != nil {
				test.change(t, root)
			}
			v, err := Verify(t.Context(), filepath.Join(root, test.folder), "", Options{})
			if err != nil || len(v.Releases) != 1 {
				t.Fatalf("Verify = %v, %v", v, err)
			}
			var problems []string
			for _, p := range v.Problems {
				problems = append(problems, p.Error())
			}
			if got := strings.Join(problems, "\n"); (got == "") != (test.problem == "") || !strings.Contains(got, test.problem) {
				t.Errorf("the problems are %q, want %q", got, test.problem)
			}
		})
	}
}

// TestVerifyBuild checks that the output of a build can be verified without a clusterctl.yaml.
func TestVerifyBuild(t *testing.T) {
	out := t.TempDir()
	for _, r := range []*release.Release{someRelease(libvirt, "v0.1.0", ""), someRelease(micro, "v0.1.0", "")} {
		if err := WriteFolder(out, r); err != nil {
			t.Fatal(err)
		}
	}
	v, err := Verify(t.Context(), out, "", Options{})
	if err != nil || len(v.Releases) != 2 || len(v.Problems) > 0 {
		t.Errorf("Verify = %v, %v", v, err)
	}
}
