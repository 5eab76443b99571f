package templates_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	coreadmission "sigs.k8s.io/cluster-api/core/webhooks/admission"
	capifeature "sigs.k8s.io/cluster-api/feature"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

func TestTemplatesMakeValidObjects(t *testing.T) {
	scheme, known := newScheme(t), loadKinds(t)
	for _, file := range clusterTemplates(t) {
		for name, values := range map[string][]map[string]string{"defaults": {needs(file)}, "everything set": {needs(file), everything}} {
			t.Run(file+" "+name, func(t *testing.T) {
				g := NewWithT(t)
				objects := render(t, file, values...)
				g.Expect(objects).ToNot(BeEmpty())
				for _, object := range objects {
					g.Expect(object.GetNamespace()).To(Equal(required["NAMESPACE"]), object.GetName())
					expectValid(t, scheme, known, object)
				}
				expectReferencesResolve(t, objects)
			})
		}
	}
}

func TestClusterClassIsValid(t *testing.T) {
	g := NewWithT(t)
	scheme, known := newScheme(t), loadKinds(t)
	objects := readClass(t)
	for _, object := range objects {
		g.Expect(object.GetNamespace()).To(BeEmpty(), "%s %s names a namespace", object.GetKind(), object.GetName())
		expectValid(t, scheme, known, object)
	}

	// Cluster API's own webhook, with the feature gate for ClusterClasses.
	g.Expect(capifeature.MutableGates.Set("ClusterTopology=true")).To(Succeed())
	t.Cleanup(func() { g.Expect(capifeature.MutableGates.Set("ClusterTopology=false")).To(Succeed()) })
	class := &clusterv1.ClusterClass{}
	g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(objects[0].Object, class)).To(Succeed())
	class.Namespace = "default" // as clusterctl sets it
	webhook := &coreadmission.ClusterClass{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	_, err := webhook.ValidateCreate(context.Background(), class)
	g.Expect(err).ToNot(HaveOccurred())
}

func readClass(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(classFile)
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	return objectsOf(t, content)
}

func TestClusterClassHasNoVariablesOfTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(classFile)
	g.Expect(err).ToNot(HaveOccurred())
	variables, err := yamlprocessor.NewSimpleProcessor().GetVariables(content)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(variables).To(BeEmpty())

	// clusterctl must return the file unchanged.
	processed, err := yamlprocessor.NewSimpleProcessor().Process(content, func(string) (string, error) { return "", nil })
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(string(processed)).To(Equal(string(content)))
}

var metaDataKey = regexp.MustCompile(`ds\.meta_data\.([a-z_]+)`)

// TestNodesHaveLabelsOfTheirPlace checks that nodes get the labels of their failure domain and host in every way of
// joining, and that the meta-data has the values that the templates use.
func TestNodesHaveLabelsOfTheirPlace(t *testing.T) {
	disk, err := seed.Seed{InstanceID: "1", Hostname: "m-1", UserData: []byte("#cloud-config\n"), AvailabilityZone: "rack-1", Host: "host-1"}.ISO()
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	for _, file := range append(clusterTemplates(t), classFile) {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			if file == "cluster-template-topology.yaml" {
				g.Expect(string(content)).ToNot(ContainSubstring("nodeRegistration"), "the ClusterClass sets it")
				return
			}
			ways := strings.Count(string(content), "nodeRegistration:")
			g.Expect(ways).To(BeNumerically(">=", 3))
			g.Expect(strings.Count(string(content), `- name: node-labels`)).To(Equal(ways))
			g.Expect(strings.Count(string(content), `value: "topology.kubernetes.io/zone={{ ds.meta_data.availability_zone }},`+
				infrav1.HostLabel+`={{ ds.meta_data.libvirt_host }}"`)).To(Equal(ways))
			for _, key := range metaDataKey.FindAllStringSubmatch(string(content), -1) {
				g.Expect(string(disk)).To(ContainSubstring(strings.ReplaceAll(key[1], "_", "-")+": "), "cloud-init replaces dashes by underscores")
			}
		})
	}
}

// tableRow is a row of the table at the beginning of a template: the variable, then its default or "required".
var tableRow = regexp.MustCompile(`(?m)^#   ([A-Z_]+) +(\S+) `)

func TestVariablesAreDocumented(t *testing.T) {
	for _, file := range clusterTemplates(t) {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(content)
			g.Expect(err).ToNot(HaveOccurred())

			documented := map[string]string{}
			for _, row := range tableRow.FindAllStringSubmatch(string(content), -1) {
				documented[row[1]] = row[2]
			}
			var needed []string
			for name, value := range variables {
				want := "required"
				if value != nil {
					want = *value
				} else {
					needed = append(needed, name)
				}
				g.Expect(documented).To(HaveKeyWithValue(name, want))
			}
			g.Expect(documented).To(HaveLen(len(variables)), "a variable is documented and not used")

			var given []string
			for name := range needs(file) {
				given = append(given, name)
			}
			g.Expect(needed).To(ConsistOf(given))
			// clusterctl shows the default of the first occurrence, so all must agree.
			expectSameDefaults(g, string(content))
		})
	}
}

var placeOfVariable = regexp.MustCompile(`\$\{([A-Z_]+)([^}]*)\}`)

func expectSameDefaults(g *WithT, content string) {
	defaults := map[string]string{}
	for _, place := range placeOfVariable.FindAllStringSubmatch(content, -1) {
		if first, ok := defaults[place[1]]; ok {
			g.Expect(place[2]).To(Equal(first), place[1])
		}
		defaults[place[1]] = place[2]
	}
}

// expectReferencesResolve checks every reference that has a name and a kind. ClusterClasses are in a separate file.
func expectReferencesResolve(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	var known []string
	for _, object := range objects {
		known = append(known, object.GroupVersionKind().GroupKind().String()+"/"+object.GetName())
	}
	for _, object := range objects {
		visitReferences(object.Object, func(group, kind, name string) {
			reference := kind + "." + group + "/" + name
			if !slices.Contains(known, reference) {
				t.Errorf("%s %s refers to %s, which isn't in the template", object.GetKind(), object.GetName(), reference)
			}
		})
	}
}

func visitReferences(value any, visit func(group, kind, name string)) {
	switch value := value.(type) {
	case map[string]any:
		group, isReference := value["apiGroup"].(string)
		if isReference {
			kind, _ := value["kind"].(string)
			name, _ := value["name"].(string)
			visit(group, kind, name)
		}
		for key, inner := range value {
			if !strings.HasPrefix(key, "apiVersion") {
				visitReferences(inner, visit)
			}
		}
	case []any:
		for _, inner := range value {
			visitReferences(inner, visit)
		}
	}
}
