package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const moveHierarchyLabel = "clusterctl.cluster.x-k8s.io/move-hierarchy"

// contractKinds are the kinds that Cluster API's core controllers read.
var contractKinds = []string{
	"LibvirtCluster", "LibvirtClusterTemplate",
	"LibvirtMachine", "LibvirtMachineTemplate",
	"LibvirtMachinePool", "LibvirtMachinePoolTemplate",
}

// hierarchyKinds are shared by clusters, and move with all objects below them.
var hierarchyKinds = []string{"LibvirtHost", "LibvirtClusterIdentity"}

func readCRDs(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	g := NewWithT(t)

	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		g.Expect(err).ToNot(HaveOccurred())
		crd := &apiextensionsv1.CustomResourceDefinition{}
		g.Expect(yaml.UnmarshalStrict(content, crd)).To(Succeed(), file)
		crds[crd.Spec.Names.Kind] = crd
	}
	g.Expect(crds).To(HaveLen(len(contractKinds) + len(hierarchyKinds)))
	return crds
}

func TestCRDsAreAcceptedByTheAPIServer(t *testing.T) {
	for kind, crd := range readCRDs(t) {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)

			// The API server sets these defaults before it validates a CRD.
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			crd.Status.StoredVersions = []string{infrav1.GroupVersion.Version}
			internal := &apiextensions.CustomResourceDefinition{}
			g.Expect(apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil)).To(Succeed())

			// This includes the cost of the CEL rules, and the validity of defaults.
			errs := apiextensionsvalidation.ValidateCustomResourceDefinition(context.Background(), internal)
			g.Expect(errs).To(BeEmpty())
		})
	}
}

func TestCRDsFollowTheContract(t *testing.T) {
	for kind, crd := range readCRDs(t) {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)

			g.Expect(crd.Name).To(Equal(contract.CalculateCRDName(infrav1.GroupVersion.Group, kind)))
			g.Expect(crd.Spec.Names.ListKind).To(Equal(kind + "List"))
			g.Expect(crd.Spec.Names.Categories).To(ConsistOf("cluster-api"))
			g.Expect(crd.Spec.Names.ShortNames).To(HaveLen(1))
			g.Expect(crd.Spec.Versions).To(HaveLen(1))
			g.Expect(crd.Spec.Versions[0].Name).To(Equal(infrav1.GroupVersion.Version))
			g.Expect(crd.Spec.Versions[0].Storage).To(BeTrue())

			contractLabel := clusterv1.GroupVersion.Group + "/" + clusterv1.GroupVersion.Version
			if slices.Contains(hierarchyKinds, kind) {
				g.Expect(crd.Spec.Scope).To(Equal(apiextensionsv1.ClusterScoped))
				g.Expect(crd.Labels).To(HaveKeyWithValue(moveHierarchyLabel, ""))
			} else {
				g.Expect(crd.Spec.Scope).To(Equal(apiextensionsv1.NamespaceScoped))
				g.Expect(crd.Labels).To(HaveKeyWithValue(contractLabel, infrav1.GroupVersion.Version))
			}

			_, hasStatus := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
			hasSubresource := crd.Spec.Versions[0].Subresources != nil && crd.Spec.Versions[0].Subresources.Status != nil
			g.Expect(hasSubresource).To(Equal(hasStatus))
		})
	}
}

// TestCRDsHavePrintColumns checks that kubectl shows for all kinds the age, whether they are ready and paused, and the
// problem, and that each column shows an existing field.
func TestCRDsHavePrintColumns(t *testing.T) {
	const condition = `.status.conditions[?(@.type=="%s")].%s`
	for kind, crd := range readCRDs(t) {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)

			shown, wide := map[string]string{}, map[string]string{}
			columns := crd.Spec.Versions[0].AdditionalPrinterColumns
			for _, column := range columns {
				g.Expect(column.Description).ToNot(BeEmpty(), column.Name)
				if column.Priority > 0 {
					wide[column.Name] = column.JSONPath
				} else {
					shown[column.Name] = column.JSONPath
				}
				g.Expect(fieldAt(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, column.JSONPath)).To(BeTrue(), "%s shows %s", column.Name, column.JSONPath)
			}
			g.Expect(wide).ToNot(BeEmpty(), "-o wide needs a column")
			g.Expect(shown).To(HaveKeyWithValue("Age", ".metadata.creationTimestamp"))
			if !fieldAt(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, ".status.conditions") {
				return
			}
			g.Expect(shown).To(HaveKeyWithValue("Ready", fmt.Sprintf(condition, "Ready", "status")))
			g.Expect(wide).To(HaveKeyWithValue("Paused", fmt.Sprintf(condition, "Paused", "status")))
			g.Expect(wide).To(HaveKeyWithValue("Message", fmt.Sprintf(condition, "Ready", "message")))
			g.Expect(columns[len(columns)-1].Name).To(Equal("Message"), "the longest column is the last")
		})
	}
}

// fieldAt reports whether a schema has the field of a column, for paths of object fields.
func fieldAt(schema *apiextensionsv1.JSONSchemaProps, path string) bool {
	path, _, _ = strings.Cut(path, "[")
	for _, name := range strings.Split(strings.TrimPrefix(path, "."), ".") {
		field, ok := schema.Properties[name]
		if !ok {
			return schema.Type == "object" && len(schema.Properties) == 0 // metadata has no schema
		}
		schema = &field
	}
	return true
}

func TestTemplatesHaveNoImmutabilityRules(t *testing.T) {
	for kind, crd := range readCRDs(t) {
		walk("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
			for _, rule := range schema.XValidations {
				if strings.Contains(rule.Rule, "oldSelf") {
					t.Errorf("%s%s: rule %q can't be skipped for the topology controller's dry run: check it in the webhook", kind, path, rule.Rule)
				}
			}
		})
	}
}

// TestFieldsAreDescribedAndLimited checks that every field below spec and status has a description, and that every
// string and list of this package has a limit.
func TestFieldsAreDescribedAndLimited(t *testing.T) {
	for kind, crd := range readCRDs(t) {
		root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			schema, ok := root.Properties[part]
			if !ok {
				continue
			}
			walk("."+part, &schema, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
				for _, complaint := range complaints(path, schema) {
					t.Errorf("%s%s: %s", kind, path, complaint)
				}
			})
		}
	}
}

func complaints(path string, schema *apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	if schema.Description == "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") {
		found = append(found, "no description")
	}
	if isForeign(path) {
		return found
	}
	limited := schema.MaxLength != nil || len(schema.Enum) > 0 || schema.Pattern != "" || schema.Format != ""
	if schema.Type == "string" && !limited {
		found = append(found, "a string without maxLength, enum, pattern or format")
	}
	if schema.Type == "array" && schema.MaxItems == nil {
		found = append(found, "a list without maxItems")
	}
	if schema.Type == "array" && schema.XListType == nil {
		found = append(found, "a list without a list type")
	}
	if schema.Type == "integer" && schema.Minimum == nil && schema.Format != "int64" {
		found = append(found, "a number without a minimum")
	}
	return found
}

// isForeign reports whether a field belongs to a type of Kubernetes or Cluster API, which can't be limited here.
func isForeign(path string) bool {
	for _, foreign := range []string{
		".hostSelector", ".selector", // metav1.LabelSelector
		".conditions[]",                // metav1.Condition
		".failureDomains[].attributes", // clusterv1.FailureDomain
		".metadata",                    // clusterv1.ObjectMeta
		".status.capacity{}",           // corev1.ResourceList
	} {
		if strings.Contains(path, foreign) {
			return true
		}
	}
	return false
}

// walk visits a schema and all schemas in it, with fields in the order of their names.
func walk(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property := schema.Properties[name]
		walk(fmt.Sprintf("%s.%s", path, name), &property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(path+"[]", schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walk(path+"{}", schema.AdditionalProperties.Schema, visit)
	}
}
