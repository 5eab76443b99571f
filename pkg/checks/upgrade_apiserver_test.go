package checks_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// refusedUpgrades are the checks whose errors predict that the API server refuses to patch an object that
// clusterctl upgrade does not delete, with the kinds of these objects.
var refusedUpgrades = map[string][]string{
	"crd-version-removed":     {"CustomResourceDefinition"},
	"crd-scope-changed":       {"CustomResourceDefinition"},
	"conversion-removed":      {"CustomResourceDefinition"},
	"crd-ca-bundle":           {"CustomResourceDefinition"},
	"crd-update-refused":      {"CustomResourceDefinition"},
	"role-ref-changed":        {"ClusterRoleBinding"},
	"immutable-field-changed": {"PriorityClass", "RuntimeClass", "StorageClass", "CSIDriver"},
}

// TestRefusedUpgradesMatchAPIServer repeats, for all cases of these checks, on a real API server what clusterctl
// upgrade does to the objects that it does not delete: it creates the components of the previous release and
// patches those of the new one over them by JSON merge, both as prepared by clusterctl's own code. The API server
// refuses a patch if and only if a check reports an error.
func TestRefusedUpgradesMatchAPIServer(t *testing.T) {
	prerequisite.APIServer(t)
	environment := &envtest.Environment{}
	restConfig, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Stop() })
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for id, kinds := range refusedUpgrades {
		data, err := os.ReadFile(filepath.Join(pinned.Root(t), "testdata", "checks", id+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var cases caseFile
		if err := yaml.UnmarshalStrict(data, &cases); err != nil {
			t.Fatal(err)
		}
		for _, tc := range append(cases.Bad, cases.Good...) {
			t.Run(id+"/"+tc.Name, func(t *testing.T) {
				number++
				subject := tc.subject(t)
				if subject.Previous == nil {
					t.Skip("the case has no previous release")
				}
				before, after := installable(t, subject.Previous), installable(t, subject.Release)
				var refusal error
				for _, o := range after {
					i := slices.IndexFunc(before, func(b unstructured.Unstructured) bool {
						return b.GetName() == o.GetName() && b.GetKind() == o.GetKind()
					})
					if i < 0 || !slices.Contains(kinds, o.GetKind()) || deletedByClusterctl(o) || changesNothing(before[i], o) {
						continue
					}
					if refused := patched(t, c, fmt.Sprintf("case%d", number), before[i], o); refused != nil {
						refusal = refused
					}
				}
				predicted := false
				for id := range refusedUpgrades {
					check, err := catalog.All().Find(id)
					if err != nil {
						t.Fatal(err)
					}
					if err := check.Run(t.Context(), subject, func(f checks.Finding) {
						predicted = predicted || f.Severity == checks.Error || f.Severity == "" && check.Severity == checks.Error
					}); err != nil {
						t.Fatal(err)
					}
				}
				if predicted != (refusal != nil) {
					t.Errorf("the checks predict a refusal: %v; the API server returns %v", predicted, refusal)
				}
			})
		}
	}
}

// TestPlaceholderOnCreate creates objects with an invalid caBundle: the API server accepts them, so that
// cert-manager can replace the caBundle. Until then a CRD is not established.
func TestPlaceholderOnCreate(t *testing.T) {
	prerequisite.APIServer(t)
	environment := &envtest.Environment{}
	restConfig, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = environment.Stop() })
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const webhook = `webhooks: [{name: a.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {caBundle: Cg==, service: {name: a, namespace: a}}}]`
	for _, text := range []string{
		"{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: a}, " + webhook + "}",
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}, " + webhook + "}",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: as.example.com}, spec: {group: example.com, scope: Cluster,
		  names: {kind: A, plural: as}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}],
		  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: Cg==, service: {name: a, namespace: a}}}}}}`,
	} {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), &o); err != nil {
			t.Errorf("creating the %s: %v", o.GetKind(), err)
		}
	}
	waitFor(t, func() bool {
		crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "as.example.com"}, crd); err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(item any) bool {
			condition, _ := item.(map[string]any)
			return condition["type"] == "Established" && condition["status"] == "False" && condition["reason"] == "InvalidCABundle"
		})
	})
}

// changesNothing reports whether both releases have the same object and nothing is injected into it.
func changesNothing(before, after unstructured.Unstructured) bool {
	_, converted, _ := unstructured.NestedMap(before.Object, "spec", "conversion", "webhook") // may have an injected CA
	return !converted && equality.Semantic.DeepEqual(before.Object, after.Object)
}

// deletedByClusterctl reports whether clusterctl upgrade deletes a cluster-scoped object before it creates the
// new one.
// Source: clusterctl, client/cluster components.go, Delete.
func deletedByClusterctl(o unstructured.Unstructured) bool {
	return o.GetKind() != "CustomResourceDefinition" && strings.HasPrefix(o.GetName(), "caplv-system-")
}

// installable returns the objects that clusterctl prepares from a release's components.
func installable(t *testing.T, r *release.Release) []unstructured.Unstructured {
	t.Helper()
	return installableIn(t, r, "")
}

// installableIn is like installable, with another target namespace. "" is the release's own namespace.
func installableIn(t *testing.T, r *release.Release, namespace string) []unstructured.Unstructured {
	t.Helper()
	reader := config.NewMemoryReader()
	if err := reader.Init(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	client, err := config.New(t.Context(), "", config.InjectReader(reader))
	if err != nil {
		t.Fatal(err)
	}
	file, _ := r.Components()
	components, err := repository.NewComponents(repository.ComponentsInput{
		Provider: config.NewProvider(r.Provider.Name, "", r.Provider.Type), ConfigClient: client,
		Processor: yamlprocessor.NewSimpleProcessor(), RawYaml: file.Data, Options: repository.ComponentsOptions{Version: r.Version, TargetNamespace: namespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	return components.Objs()
}

// patched creates an object, patches another over it as clusterctl does, and returns the API server's error for
// the patch.
func patched(t *testing.T, c client.Client, group string, before, after unstructured.Unstructured) error {
	t.Helper()
	before, after = inGroup(t, before, group), inGroup(t, after, group)
	if err := c.Create(t.Context(), &before); err != nil {
		t.Fatalf("creating %s %s: %v", before.GetKind(), before.GetName(), err)
	}
	injectCA(t, c, before)
	waitEstablished(t, c, before)
	after.SetResourceVersion("")
	err := c.Patch(t.Context(), &after, client.Merge)
	if err != nil && !apierrors.IsInvalid(err) {
		t.Fatalf("patching %s %s: %v", after.GetKind(), after.GetName(), err)
	}
	if before.GetKind() != "CustomResourceDefinition" {
		if err := client.IgnoreNotFound(c.Delete(t.Context(), &before)); err != nil {
			t.Fatal(err)
		}
	}
	return err
}

// injectCA writes a CA into a CRD that is annotated for injection, as cert-manager does.
func injectCA(t *testing.T, c client.Client, o unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() != "CustomResourceDefinition" || o.GetAnnotations()["cert-manager.io/inject-ca-from"] == "" {
		return
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd); err != nil {
		t.Fatal(err)
	}
	installed := crdupdate.Installed(crd, true)
	if installed.Spec.Conversion.Webhook == nil {
		return
	}
	patch := map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": map[string]any{
		"caBundle": installed.Spec.Conversion.Webhook.ClientConfig.CABundle,
	}}}}}
	data, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), &o, client.RawPatch(types.MergePatchType, data)); err != nil {
		t.Fatal(err)
	}
}

// inGroup returns an object with another group instead of the provider's: the API server takes long to delete a
// CRD, and the next case needs its name.
func inGroup(t *testing.T, o unstructured.Unstructured, group string) unstructured.Unstructured {
	t.Helper()
	if o.GetKind() != "CustomResourceDefinition" {
		return *o.DeepCopy()
	}
	data, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var moved unstructured.Unstructured
	if err := moved.UnmarshalJSON([]byte(strings.ReplaceAll(string(data), "infrastructure.cluster.x-k8s.io", group+".cluster.x-k8s.io"))); err != nil {
		t.Fatal(err)
	}
	return moved
}

// waitEstablished waits until a CRD is established: until then the API server allows changes that it refuses later.
func waitEstablished(t *testing.T, c client.Client, o unstructured.Unstructured) {
	t.Helper()
	if o.GetKind() != "CustomResourceDefinition" {
		return
	}
	waitFor(t, func() bool {
		found := o.DeepCopy()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(item any) bool {
			condition, _ := item.(map[string]any)
			return condition["type"] == "Established" && condition["status"] == "True"
		})
	})
}

// waitFor waits until condition returns true.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition is still false after 30 seconds")
		}
	}
}
