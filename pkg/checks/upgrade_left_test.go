package checks_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

// TestLeftObjectsMatchClusterctl runs, for all cases of object-left, the first half of an upgrade on a real API
// server: clusterctl's own code creates the previous release, and deletes it as clusterctl upgrade does. The check
// has to report the objects that still exist and are not in the new release.
func TestLeftObjectsMatchClusterctl(t *testing.T) {
	prerequisite.APIServer(t)
	environment := &envtest.Environment{}
	restConfig, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Stop() })
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(restConfig)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := config.New(t.Context(), "", config.InjectReader(config.NewMemoryReader()))
	if err != nil {
		t.Fatal(err)
	}
	clusterctl := cluster.New(cluster.Kubeconfig{Path: kubeconfig}, configuration).ProviderComponents()

	data, err := os.ReadFile(filepath.Join(pinned.Root(t), "testdata", "checks", "object-left.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var cases caseFile
	if err := yaml.UnmarshalStrict(data, &cases); err != nil {
		t.Fatal(err)
	}
	check, err := catalog.All().Find("object-left")
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, tc := range append(cases.Bad, cases.Good...) {
		t.Run(tc.Name, func(t *testing.T) {
			subject := tc.subject(t)
			if _, err := subject.Components(); err != nil {
				t.Skip("clusterctl can't read the new release")
			}
			before := slices.DeleteFunc(installable(t, subject.Previous), func(o unstructured.Unstructured) bool {
				// cert-manager is not installed, and another check reports CRDs
				_, err := known.ServerResourcesForGroupVersion(o.GetAPIVersion())
				return err != nil || o.GetKind() == "CustomResourceDefinition"
			})
			if err := clusterctl.Create(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			provider := clusterctlv1.Provider{ProviderName: subject.Previous.Provider.Name, Type: string(subject.Previous.Provider.Type)}
			provider.Name, provider.Namespace = subject.Previous.Provider.Label(), "caplv-system"
			if err := clusterctl.Delete(t.Context(), cluster.DeleteOptions{Provider: provider}); err != nil {
				t.Fatal(err)
			}
			after := installable(t, subject.Release)
			want := []string{}
			for _, o := range before {
				existing := &unstructured.Unstructured{}
				existing.SetGroupVersionKind(o.GroupVersionKind())
				if o.GetKind() == "Namespace" || c.Get(t.Context(), client.ObjectKeyFromObject(&o), existing) != nil || existing.GetDeletionTimestamp() != nil {
					continue
				}
				stays := slices.ContainsFunc(after, func(a unstructured.Unstructured) bool {
					return a.GetKind() == o.GetKind() && a.GetName() == o.GetName()
				})
				if !stays {
					want = append(want, o.GetKind()+" "+o.GetName())
				}
				if err := c.Delete(t.Context(), existing); err != nil {
					t.Fatal(err)
				}
			}
			got := []string{}
			for _, f := range findingsOf(t, check, subject) {
				got = append(got, f.Object.Kind+" "+f.Object.Name)
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("remaining objects (-clusterctl +check):\n%s", diff)
			}
			left += len(want)
		})
	}
	if left < len(cases.Bad) {
		t.Errorf("%d objects remained in all cases, want at least one for each of the %d bad cases", left, len(cases.Bad))
	}
}
