package checks_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestUpgradeToSameReleaseHasNoFindings upgrades every release of the corpus to itself: nothing changes, so the
// checks of an upgrade must find nothing.
func TestUpgradeToSameReleaseHasNoFindings(t *testing.T) {
	for label, unit := range corpusUnits(t) {
		for _, f := range upgradeFindings(t, &checks.Subject{Release: unit.release, Previous: unit.release}) {
			t.Errorf("%s: %s %s: %s", label, f.ID, f.Path, f.Message)
		}
	}
}

// upgradeFindings returns the findings of all checks of an upgrade.
func upgradeFindings(t *testing.T, s *checks.Subject) []checks.Finding {
	t.Helper()
	var found []checks.Finding
	for _, check := range catalog.All() {
		if check.Group == checks.Upgrade {
			found = append(found, findingsOf(t, check, s)...)
		}
	}
	return found
}

// findingsOf returns the findings of a check.
func findingsOf(t *testing.T, check checks.Check, s *checks.Subject) []checks.Finding {
	t.Helper()
	var found []checks.Finding
	if err := check.Run(t.Context(), s, func(f checks.Finding) {
		f.ID = check.ID
		found = append(found, f)
	}); err != nil {
		t.Fatalf("%s: %v", check.ID, err)
	}
	return found
}

// oneChange is a change of one thing in a release.
type oneChange struct {
	name string
	// change returns the changed object, or nil to remove it, and reports whether it changed anything.
	change func(o object) (object, bool)
	// want is the check that has to report the object; alsoReports are other checks that may report it.
	want        string
	alsoReports []string
}

// ofKind returns a change function that applies change to the objects of a kind.
func ofKind(kind string, change func(o object) bool) func(o object) (object, bool) {
	return func(o object) (object, bool) { return o, o["kind"] == kind && change(o) }
}

// field returns the object at a path of names, or an empty one.
func field(o object, path ...string) object {
	found, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	m, _ := found.(object)
	return m
}

func byWebhook(o object) bool { return field(o, "spec", "conversion")["strategy"] == "Webhook" }

// storedSpec returns the schema of the spec in the version that a CRD stores, or nil if the schema preserves unknown
// fields.
func storedSpec(o object) object {
	for _, v := range crdVersions(o) {
		if v.(object)["storage"] == true {
			spec := field(v.(object), "schema", "openAPIV3Schema", "properties", "spec")
			if _, keeps := spec["x-kubernetes-preserve-unknown-fields"]; !keeps {
				return spec
			}
		}
	}
	return nil
}

var crdKind = "CustomResourceDefinition"

var oneChanges = []oneChange{
	{name: "removed field", want: "crd-field-removed", change: ofKind(crdKind, func(o object) bool {
		properties := field(storedSpec(o), "properties")
		required, _ := storedSpec(o)["required"].([]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if !slices.Contains(required, any(name)) {
				delete(properties, name)
				return true
			}
		}
		return false
	}), alsoReports: []string{"crd-validation-narrowed", "crd-default-changed"}},
	{name: "required field", want: "crd-field-required", change: ofKind(crdKind, func(o object) bool {
		spec := storedSpec(o)
		properties, _ := spec["properties"].(object)
		if properties == nil {
			return false
		}
		required, _ := spec["required"].([]any)
		spec["required"] = append(slices.Clone(required), "parity")
		properties["parity"] = object{"type": "string"}
		return true
	})},
	{name: "another scope", want: "crd-scope-changed", change: ofKind(crdKind, func(o object) bool {
		spec := field(o, "spec")
		spec["scope"] = map[any]string{"Namespaced": "Cluster", "Cluster": "Namespaced"}[spec["scope"]]
		return true
	})},
	{name: "removed stored version", want: "crd-version-removed", change: ofKind(crdKind, func(o object) bool {
		for i, v := range crdVersions(o) {
			if v.(object)["storage"] == true && len(crdVersions(o)) > 1 {
				versions := slices.Delete(slices.Clone(crdVersions(o)), i, i+1)
				versions[0].(object)["storage"] = true
				field(o, "spec")["versions"] = versions
				return true
			}
		}
		return false
	})},
	{name: "no CRD", want: "crd-removed", change: func(o object) (object, bool) { return nil, o["kind"] == crdKind }},
	{name: "no conversion webhook", want: "conversion-removed", change: ofKind(crdKind, func(o object) bool {
		hadWebhook := byWebhook(o)
		field(o, "spec")["conversion"] = object{"strategy": "None"}
		return hadWebhook
	})},
	{name: "a conversion webhook by URL", want: "crd-update-refused", change: ofKind(crdKind, func(o object) bool {
		if !byWebhook(o) || field(o, "spec", "conversion", "webhook", "clientConfig", "service") == nil {
			return false
		}
		field(o, "spec", "conversion", "webhook")["clientConfig"] = object{"url": "https://example.com/convert"}
		return true
	})},
	{name: "a placeholder for the CA", want: "crd-ca-bundle", change: ofKind(crdKind, func(o object) bool {
		if !byWebhook(o) || field(o, "spec", "conversion", "webhook", "clientConfig")["caBundle"] != nil {
			return false
		}
		field(o, "spec", "conversion", "webhook", "clientConfig")["caBundle"] = "Cg=="
		return true
	})},
	{name: "another role", want: "role-ref-changed", change: ofKind("ClusterRoleBinding", func(o object) bool {
		field(o, "roleRef")["name"] = "parity"
		return true
	})},
	{name: "another selector", want: "selector-changed", change: ofKind("Deployment", func(o object) bool {
		labels := field(o, "spec", "selector", "matchLabels")
		if labels == nil {
			return false
		}
		labels["parity"] = "true"
		return true
	})},
	{name: "no ClusterRole", want: "object-left", change: func(o object) (object, bool) { return nil, o["kind"] == "ClusterRole" }},
}

// TestUpgradeOfOneChange changes one thing in releases of the corpus: the check for this change reports the object,
// and no other check of an upgrade reports anything. Each change is tried in up to four units.
func TestUpgradeOfOneChange(t *testing.T) {
	labels := slices.Sorted(maps.Keys(corpusUnits(t)))
	for i, c := range oneChanges {
		t.Run(c.name, func(t *testing.T) {
			tried := 0
			for j := range labels {
				label := labels[(i*7+j)%len(labels)]
				if before, after, name := withOneChange(t, corpus[label].release, c); name != "" {
					c.compare(t, label, name, &checks.Subject{Release: after, Previous: before})
					if tried++; tried == 4 {
						return
					}
				}
			}
			if tried == 0 {
				t.Error("no release of the corpus has an object that can be changed")
			}
		})
	}
}

// compare compares the findings of an upgrade that changes one object with the wanted check.
func (c oneChange) compare(t *testing.T, label, name string, s *checks.Subject) {
	t.Helper()
	found := upgradeFindings(t, s)
	check, err := catalog.All().Find(c.want)
	if err != nil {
		t.Fatal(err)
	}
	if check.Group != checks.Upgrade {
		found = append(found, findingsOf(t, check, s)...)
	}
	isAbout := func(f checks.Finding) bool { return f.Object.Kind+" "+f.Object.Name == name }
	if !slices.ContainsFunc(found, func(f checks.Finding) bool { return f.ID == c.want && isAbout(f) }) {
		t.Errorf("%s: %s does not report %s", label, c.want, name)
	}
	for _, f := range found {
		if f.ID != c.want && !slices.Contains(c.alsoReports, f.ID) || !isAbout(f) {
			t.Errorf("%s, %s changed: %s reports %s: %s", label, name, f.ID, f.Object, f.Message)
		}
	}
}

// withOneChange returns a release, the release with a change of the first object to which the change applies, and
// the kind and name of that object, or "" if there is none. Both releases are encoded the same way.
func withOneChange(t *testing.T, r *release.Release, c oneChange) (before, after *release.Release, name string) {
	t.Helper()
	subject := &checks.Subject{Release: r}
	if _, err := subject.Components(); err != nil {
		return nil, nil, "" // another check reports it
	}
	var old, now strings.Builder
	for _, d := range subject.Objects() {
		o := clone(d.Object.Object)
		old.WriteString(documentOf(t, o))
		if name == "" {
			if changed, ok := c.change(o); ok {
				name = d.Object.GetKind() + " " + d.Object.GetName()
				if o = changed; o == nil {
					continue
				}
			}
		}
		now.WriteString(documentOf(t, o))
	}
	return withComponents(r, old.String()), withComponents(r, now.String()), name
}

func documentOf(t *testing.T, o object) string {
	t.Helper()
	data, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return "---\n" + string(data)
}

// withComponents returns a copy of a release with another components YAML.
func withComponents(r *release.Release, text string) *release.Release {
	other := &release.Release{Provider: r.Provider, Version: r.Version, Files: slices.Clone(r.Files)}
	for i := range other.Files {
		if other.Files[i].Name == r.Provider.ComponentsFile() {
			other.Files[i].Data = []byte(text)
		}
	}
	return other
}
