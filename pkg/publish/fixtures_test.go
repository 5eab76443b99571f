package publish

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var (
	libvirt = release.Provider{Name: "libvirt", Type: clusterctlv1.InfrastructureProviderType}
	micro   = release.Provider{Name: "micro", Type: clusterctlv1.BootstrapProviderType}
)

// someSource is the source of the releases in the tests.
var someSource = release.Source{Repository: githubURL, Commit: someCommit, Tool: "v0.0.1"}

// metadata has every release series that the tests publish.
const metadata = `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
`

// someRelease returns a release. Releases with different notes have different bytes.
func someRelease(provider release.Provider, version, note string) *release.Release {
	r, err := release.New(provider, version, []release.File{
		{Name: provider.ComponentsFile(), Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + provider.Name + "-system # " + note + "\n")},
		{Name: release.MetadataFile, Data: []byte(metadata)},
		{Name: "cluster-template-prod.yaml", Data: []byte("kind: Cluster # ${CLUSTER_NAME} " + note)},
	})
	if err != nil {
		panic(err)
	}
	r.Record(someSource)
	return r
}

func open(t testing.TB, to string, opts Options) Publisher {
	t.Helper()
	p, err := Open(to, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func publish(t testing.TB, to string, opts Options, releases ...*release.Release) *Result {
	t.Helper()
	result, err := open(t, to, opts).Publish(t.Context(), releases)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// mustRead reads one release from a version folder.
func mustRead(t testing.TB, root string, r *release.Release) *release.Release {
	t.Helper()
	got, err := release.ReadVersion(filepath.Join(root, r.Provider.Label(), r.Version))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// tree returns the mode and bytes of each path below a folder.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		data := ""
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			data = string(b)
		}
		name, err := filepath.Rel(root, path)
		found[name] = info.Mode().String() + " " + data
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return found
}

// leftovers returns the paths of lock files and temporary files in a tree.
func leftovers(paths map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(paths)), func(path string) bool {
		return !strings.Contains(path, ".clusterctl-release")
	})
}

func sameTree(t testing.TB, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the folder changed (-want +got):\n%s", diff)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
