package checks_test

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
)

// TestUpgradeCauses checks upgrades in which one change affects several objects: the report has one finding for
// the change, with all its places.
func TestUpgradeCauses(t *testing.T) {
	const spec = "path: [spec, versions, 0, schema, openAPIV3Schema, properties, spec, properties"
	const before = "previous: [{file: NOTES.md, write: before}]\nedits:\n"
	crd := func(name string) string {
		return "- {file: infrastructure-components.yaml, object: CustomResourceDefinition " + name + ".infrastructure.cluster.x-k8s.io, "
	}
	for id, tc := range map[string]struct {
		release string
		places  int
	}{
		"crd-field-removed": {before +
			crd("libvirtmachines") + spec + ", autostart], delete: true}\n" +
			crd("libvirtmachinetemplates") + spec + ", template, properties, spec, properties, autostart], delete: true}", 2},
		"contract-label-left": {"previous:\n" +
			crd("libvirtmachines") + "path: [metadata, labels, cluster.x-k8s.io/v1beta1], set: v1alpha1}\n" +
			crd("libvirtclusters") + "path: [metadata, labels, cluster.x-k8s.io/v1beta1], set: v1alpha1}\n" +
			crd("libvirthosts") + "path: [metadata, labels, cluster.x-k8s.io/v1beta1], set: v1alpha1}", 3},
		"crd-version-removed": {"previous:\n" +
			crd("libvirtmachines") + "path: [spec, versions, 1], set: {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}}\n" +
			crd("libvirtclusters") + "path: [spec, versions, 1], set: {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}}", 2},
		"crd-removed": {before +
			crd("libvirtmachines") + "remove: true}\n" +
			crd("libvirthosts") + "remove: true}", 2},
	} {
		t.Run(id, func(t *testing.T) {
			var c checkCase
			if err := yaml.UnmarshalStrict([]byte(tc.release), &c); err != nil {
				t.Fatal(err)
			}
			result, err := catalog.All().Run(t.Context(), c.subject(t))
			if err != nil {
				t.Fatal(err)
			}
			var places []int
			for _, f := range result.Findings {
				if f.ID == id {
					places = append(places, 1+len(f.MorePlaces))
				}
			}
			if len(places) != 1 || places[0] != tc.places {
				t.Errorf("places of each finding = %v, want [%d]", places, tc.places)
			}
		})
	}
}
