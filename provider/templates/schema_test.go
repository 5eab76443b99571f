package templates_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clusterv1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme, infrav1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// kinds are the CRDs of the provider and of Cluster API, by group and kind.
type kinds map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition

// loadKinds reads the CRDs of this provider, and those of Cluster API in the version of go.mod.
func loadKinds(t *testing.T) kinds {
	t.Helper()
	g := NewWithT(t)
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	g.Expect(err).ToNot(HaveOccurred(), "finding the sources of Cluster API")
	clusterAPI := strings.TrimSpace(string(output))

	found := kinds{}
	for _, folder := range []string{
		"../config/crd/bases",
		filepath.Join(clusterAPI, "core/config/crd/bases"),
		filepath.Join(clusterAPI, "bootstrap/kubeadm/config/crd/bases"),
		filepath.Join(clusterAPI, "controlplane/kubeadm/config/crd/bases"),
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(files).ToNot(BeEmpty(), folder)
		for _, file := range files {
			content, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			crd := &apiextensionsv1.CustomResourceDefinition{}
			g.Expect(yaml.Unmarshal(content, crd)).To(Succeed(), file)
			found[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = crd
		}
	}
	return found
}

// problems applies the API server's defaults to an object, and returns the errors of the schema and the CEL rules.
func (k kinds) problems(t *testing.T, object *unstructured.Unstructured) field.ErrorList {
	t.Helper()
	g := NewWithT(t)
	gvk := object.GroupVersionKind()
	crd, ok := k[gvk.GroupKind()]
	g.Expect(ok).To(BeTrue(), "no CRD for %s", gvk)

	for _, version := range crd.Spec.Versions {
		if version.Name != gvk.Version {
			continue
		}
		internal := &apiextensions.JSONSchemaProps{}
		g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil)).To(Succeed())
		structural, err := structuralschema.NewStructural(internal)
		g.Expect(err).ToNot(HaveOccurred())
		validator, _, err := validation.NewSchemaValidator(internal)
		g.Expect(err).ToNot(HaveOccurred())

		content := object.DeepCopy().Object
		defaulting.Default(content, structural)
		errs := validation.ValidateCustomResource(nil, content, validator)
		celErrs, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
			Validate(context.Background(), nil, structural, content, nil, celconfig.RuntimeCELCostBudget)
		return append(errs, celErrs...)
	}
	t.Fatalf("%s is no version of %s", gvk.Version, crd.Name)
	return nil
}

// expectValid decodes an object strictly into its Go type, and validates it by its CRD.
func expectValid(t *testing.T, scheme *runtime.Scheme, known kinds, object *unstructured.Unstructured) {
	t.Helper()
	g := NewWithT(t)
	name := object.GetKind() + " " + object.GetName()

	typed, err := scheme.New(object.GroupVersionKind())
	g.Expect(err).ToNot(HaveOccurred(), name)
	content, err := yaml.Marshal(object.Object)
	g.Expect(err).ToNot(HaveOccurred(), name)
	g.Expect(yaml.UnmarshalStrict(content, typed)).To(Succeed(), name)

	g.Expect(known.problems(t, object)).To(BeEmpty(), name)
}

func bufioReader(content []byte) *bufio.Reader {
	return bufio.NewReader(bytes.NewReader(content))
}
