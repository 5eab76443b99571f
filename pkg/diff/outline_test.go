package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	components = "infrastructure-components.yaml"
	apiVersion = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\n"
)

// differenceOf compares two releases whose files are given as pairs of texts; "" is a missing file.
func differenceOf(t *testing.T, files map[string][2]string) *Difference {
	t.Helper()
	var old, now []release.File
	for name, texts := range files {
		if texts[0] != "" {
			old = append(old, release.File{Name: name, Data: []byte(texts[0])})
		}
		if texts[1] != "" {
			now = append(now, release.File{Name: name, Data: []byte(texts[1])})
		}
	}
	d, err := Releases(newRelease(t, "v0.1.0", old), newRelease(t, "v0.2.0", now))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newRelease(t *testing.T, version string, files []release.File) *release.Release {
	t.Helper()
	provider, err := release.ParseLabel("infrastructure-demo")
	if err != nil {
		t.Fatal(err)
	}
	r, err := release.New(provider, version, files)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// written returns a difference in a format.
func written(t *testing.T, d *Difference, format string) string {
	t.Helper()
	var out bytes.Buffer
	if err := (&Report{Differences: []*Difference{d}}).Write(format, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// linesOf returns the lines of the text format after the title, without indentation.
func linesOf(t *testing.T, d *Difference) []string {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(written(t, d, "text"), "\n")[1:] {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// crd is the format of a CRD; the arguments are fields of metadata and of spec.names, the conversion and the
// versions.
const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: demos.infrastructure.cluster.x-k8s.io
  %s
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: Demo, plural: demos%s}
  scope: Namespaced
  conversion: %s
  versions: [%s]
`

// TestDefinitions checks that each field of a CRD is compared, and that a default of the API server isn't a change.
func TestDefinitions(t *testing.T) {
	const none, version = "{strategy: None}", "{name: v1, served: true, storage: true%s}"
	webhook := func(path string) string {
		return "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: w, namespace: n, path: " + path + "}}}}"
	}
	for _, tc := range []struct {
		name          string
		before, after []any
		want          []string
	}{
		{"conversion webhook", []any{"", "", webhook("/a"), fmt.Sprintf(version, "")}, []any{"", "", webhook("/b"), fmt.Sprintf(version, "")},
			[]string{"For operators: Webhooks", "Demo: spec.conversion.webhook.clientConfig.service.path: /b, was /a"}},
		{"no conversion", []any{"", "", webhook("/a"), fmt.Sprintf(version, "")}, []any{"", "", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "May break: Demo: spec.conversion.strategy: None, was Webhook", "For operators: Webhooks",
				`Demo: spec.conversion.webhook: removed, was {"clientConfig":{"service":{"name":"w","namespace":"n","path":"/a","port":443}}…`}},
		{"injected CA", []any{"", "", none, fmt.Sprintf(version, "")}, []any{"annotations: {cert-manager.io/inject-ca-from: n/c}", "", none, fmt.Sprintf(version, "")},
			[]string{"For operators: Webhooks", "Demo: metadata.annotations[cert-manager.io/inject-ca-from]: added: n/c"}},
		{"printer columns", []any{"", "", none, fmt.Sprintf(version, ", additionalPrinterColumns: [{name: Age, type: date, jsonPath: .a}]")},
			[]any{"", "", none, fmt.Sprintf(version, ", additionalPrinterColumns: [{name: Age, type: date, jsonPath: .b}]")},
			[]string{"For users: API", "Demo v1: additionalPrinterColumns[Age].jsonPath: .b, was .a"}},
		{"subresources", []any{"", "", none, fmt.Sprintf(version, ", subresources: {status: {}, scale: {specReplicasPath: .a, statusReplicasPath: .b}}")},
			[]any{"", "", none, fmt.Sprintf(version, ", subresources: {status: {}}")},
			[]string{"Upgrade notes", `May break: Demo v1: subresources.scale: removed, was {"specReplicasPath":".a","statusReplicasPath":".b"}`}},
		{"names", []any{"", ", shortNames: [d, e]", none, fmt.Sprintf(version, "")}, []any{"", ", shortNames: [d], singular: thing", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "Demo:", "May break: spec.names.shortNames[]: removed, was e", "May break: spec.names.singular: thing, was demo"}},
		{"another controller-gen", []any{"annotations: {controller-gen.kubebuilder.io/version: v1}", "", none, fmt.Sprintf(version, "")},
			[]any{"annotations: {controller-gen.kubebuilder.io/version: v2}", "", none, fmt.Sprintf(version, "")},
			[]string{"Other changes: Files", components + ": only its text changed"}},
		{"a version more for a contract", []any{"labels: {cluster.x-k8s.io/v1beta1: v1}", "", none, fmt.Sprintf(version, "")},
			[]any{"labels: {cluster.x-k8s.io/v1beta1: v1_v2}", "", none, fmt.Sprintf(version, "")},
			[]string{"Other changes: Contract and release series", "Demo: metadata.labels[cluster.x-k8s.io/v1beta1]: v1_v2, was v1"}},
		{"a version less for a contract", []any{"labels: {cluster.x-k8s.io/v1beta1: v1_v2}", "", none, fmt.Sprintf(version, "")},
			[]any{"labels: {cluster.x-k8s.io/v1beta1: v2_v3}", "", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "May break: Demo: metadata.labels[cluster.x-k8s.io/v1beta1]: v2_v3, was v1_v2"}},
		{"no version for a contract", []any{"labels: {cluster.x-k8s.io/v1beta1: v1}", "", none, fmt.Sprintf(version, "")}, []any{"", "", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "May break: Demo: metadata.labels[cluster.x-k8s.io/v1beta1]: removed, was v1"}},
		{"deprecated", []any{"", "", none, fmt.Sprintf(version, "")}, []any{"", "", none, fmt.Sprintf(version, ", deprecated: true, deprecationWarning: use another")},
			[]string{"Upgrade notes", "Demo v1: served, stored, deprecated (was served, stored)"}},
		{"another deprecation warning", []any{"", "", none, fmt.Sprintf(version, ", deprecated: true")}, []any{"", "", none, fmt.Sprintf(version, ", deprecated: true, deprecationWarning: use another")},
			[]string{"For users: API", "Demo v1: deprecationWarning: added: use another"}},
		{"another short name", []any{"", ", shortNames: [d, e]", none, fmt.Sprintf(version, "")}, []any{"", ", shortNames: [f, d]", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "May break: Demo: spec.names.shortNames[]: f, was e"}},
		{"two short names for one", []any{"", ", shortNames: [d]", none, fmt.Sprintf(version, "")}, []any{"", ", shortNames: [e, f]", none, fmt.Sprintf(version, "")},
			[]string{"Upgrade notes", "May break: Demo: spec.names.shortNames[]: removed, was d", "For users: API", "Demo:", "spec.names.shortNames[]: added: e", "spec.names.shortNames[]: added: f"}},
		{"defaults", []any{"", "", none, fmt.Sprintf(version, "")}, []any{"", ", singular: demo, listKind: DemoList", "", fmt.Sprintf(version, "")},
			[]string{"Other changes: Files", components + ": only its text changed"}},
		{"no definition", []any{"", "", none, fmt.Sprintf(version, "")}, []any{"", "", none, "1"},
			[]string{"Other changes: Objects", "CustomResourceDefinition demos.infrastructure.cluster.x-k8s.io: spec.versions: [1], was [{\"name\":\"v1\",\"served\":true,\"storage\":true}]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := differenceOf(t, map[string][2]string{components: {fmt.Sprintf(crd, tc.before...), fmt.Sprintf(crd, tc.after...)}})
			if diff := cmp.Diff(tc.want, linesOf(t, d)); diff != "" {
				t.Error(diff)
			}
			if d.Reworded == nil && !strings.Contains(written(t, d, "json"), `"path": `) {
				t.Error("the JSON has no path of the change")
			}
		})
	}
}

// TestMigrations checks that a new version is compared with the previously stored one, and that renamed and moved
// fields are recognized by their schemas.
func TestMigrations(t *testing.T) {
	const object = "{type: object, properties: {spec: {type: object, properties: {%s}}}}"
	three := "type: object, properties: {a: {type: string}, b: {type: string}, c: {type: integer}}"
	for _, tc := range []struct{ name, before, after, want string }{
		{"a description", "old: {type: string, description: The size.}", "new: {type: string, description: The size.}", "spec.new: renamed, was spec.old"},
		{"a description with the name", "oldSize: {type: string, description: oldSize is a size.}", "size: {type: string, description: size is a size.}", "spec.size: renamed, was spec.oldSize"},
		{"another type", "old: {type: string, description: The size.}", "new: {type: integer, description: The size.}", "spec.old: removed (was string)|spec.new: added (integer)"},
		{"no description", "old: {type: string}", "new: {type: string}", "spec.old: removed (was string)|spec.new: added (string)"},
		{"a moved subtree", "net: {" + three + "}", "host: {type: object, properties: {net: {" + three + "}}}", "spec.host.net: moved, was in spec|spec.host: added (object)"},
		{"a field that moved into a new object", "reason: {type: string, description: reason says why. It is short.}",
			"old: {type: object, properties: {v1beta1: {type: object, properties: {reason: {type: string, description: reason says why. Do not use it.}}}}}",
			"spec.old.v1beta1.reason: moved, was in spec|spec.old: added (object)"},
		{"a field that moved out of a removed object", "new: {type: object, properties: {ready: {type: integer, description: How many are ready.}}}",
			"ready: {type: integer, description: How many are ready.}", "spec.new: removed (was object)|spec.ready: moved, was in spec.new"},
		{"a name that became a path", "rolloutAfter: {type: string, description: rolloutAfter is a time.}",
			"rollout: {type: object, properties: {after: {type: string, description: after is a time.}}}", "spec.rollout.after: renamed, was spec.rolloutAfter|spec.rollout: added (object)"},
		{"a field that moved and another in its place",
			"list: {type: array, items: {type: object, properties: {a: {type: string}, old: {type: string}}}}, next: {type: object, properties: {list: {type: array, maxItems: 32, items: {type: object, properties: {a: {type: string}, new: {type: integer}}}}}}",
			"list: {type: array, maxItems: 32, items: {type: object, properties: {a: {type: string}, new: {type: integer}}}}, last: {type: object, properties: {list: {type: array, items: {type: object, properties: {a: {type: string}, old: {type: string}}}}}}",
			"spec.list: moved, was in spec.next|spec.last.list: moved, was in spec|spec.next: removed (was object)|spec.last: added (object)"},
		{"a field of another meaning in a new object", "name: {type: string, description: The name of the disk.}",
			"image: {type: object, properties: {name: {type: string, description: The name of the image.}}}", "spec.name: removed (was string)|spec.image: added (object)"},
		{"another spelling", "hostId: {type: string}", "hostID: {type: string, description: The host.}", "spec.hostID: renamed, was spec.hostId"},
		{"a duration in seconds", "drainTimeout: {type: string, description: drainTimeout ends it. Nothing but DrainTimeout does.}", "drainTimeoutSeconds: {type: integer, description: drainTimeoutSeconds ends it. Nothing but DrainTimeoutSeconds does.}",
			"spec.drainTimeoutSeconds: renamed, was spec.drainTimeout|spec.drainTimeoutSeconds: type integer, was string"},
		{"a description with a word that is the new name", "rolloutAfter: {type: string, description: rolloutAfter is the time after it.}",
			"rollout: {type: object, properties: {after: {type: string, description: after is the time after it.}}}", "spec.rollout.after: renamed, was spec.rolloutAfter|spec.rollout: added (object)"},
		{"a description with the name of a kind", "machineCheck: {type: object, description: machineCheck defines a MachineCheck for it.}", "check: {type: object, description: check defines a MachineCheck for it.}",
			"spec.check: renamed, was spec.machineCheck"},
		{"a duration in seconds in a new object", "timeout: {type: string, description: timeout ends it.}",
			"deletion: {type: object, properties: {timeoutSeconds: {type: integer, description: timeoutSeconds ends it.}}}",
			"spec.deletion.timeoutSeconds: renamed, was spec.timeout|spec.deletion.timeoutSeconds: type integer, was string|spec.deletion: added (object)"},
		{"a name of two words", "cloudName: {type: string, description: A cloud.}", "identity: {type: object, properties: {cloudName: {type: string, description: An entry.}}}",
			"spec.identity.cloudName: moved, was in spec|spec.identity: added (object)"},
		{"a name of two words, into an existing object", "cloudName: {type: string}, ref: {type: object}, other: {type: object, properties: {cloudName: {type: string}, ref: {type: object}}}",
			"ref: {type: object, properties: {cloudName: {type: string}}}, other: {type: object, properties: {ref: {type: object, properties: {cloudName: {type: string}}}}}",
			"spec.other.ref.cloudName: moved, was in spec.other|spec.ref.cloudName: moved, was in spec"},
		{"moved, and required now", "cloudName: {type: string}, ref: {type: object}", "ref: {type: object, required: [cloudName], properties: {cloudName: {type: string}}}",
			"spec.ref.cloudName: moved, was in spec|spec.ref.cloudName: required, was optional"},
		{"moved, and required as before", "ref: {type: object}, old: {type: object, required: [cloudName], properties: {cloudName: {type: string}, ref: {type: object}}}",
			"ref: {type: object}, old: {type: object, properties: {ref: {type: object, required: [cloudName], properties: {cloudName: {type: string}}}}}",
			"spec.old.ref.cloudName: moved, was in spec.old"},
		{"a name of two words, out of a remaining object", "ref: {type: object, properties: {cloudName: {type: string}}}", "cloudName: {type: string}, ref: {type: object}", "spec.cloudName: moved, was in spec.ref"},
		{"a name of two words, in another object", "a: {type: object, properties: {cloudName: {type: string}}}, b: {type: object}", "a: {type: object}, b: {type: object, properties: {cloudName: {type: string}}}",
			"spec.a.cloudName: removed (was string)|spec.b.cloudName: added (string)"},
		{"a field that moved into one that became an object", "groups: {type: boolean}, allowAll: {type: boolean}", "groups: {type: object, properties: {allowAll: {type: boolean}}}",
			"spec.groups.allowAll: moved, was in spec|spec.groups: type object, was boolean"},
		{"several fields that moved", "net: {type: object, properties: {tag: {type: string, description: A tag.}, name: {type: string, description: A name.}}}",
			"net: {type: object, properties: {filter: {type: object, properties: {tag: {type: string, description: A tag.}, name: {type: string, description: A name.}}}}}",
			"spec.net.filter.name, spec.net.filter.tag: moved, was in spec.net|spec.net.filter: added (object)"},
		{"two candidates in new objects", "name: {type: string, description: The name.}",
			"x: {type: object, properties: {name: {type: string, description: The name.}}}, z: {type: object, properties: {name: {type: string, description: The name.}}}",
			"spec.name: removed (was string)|spec.x, spec.z: added (object)"},
		{"descriptions with the same start in two objects", "x: {type: object, properties: {n: {type: integer, description: n counts. It counts all.}}}",
			"z: {type: object, properties: {n: {type: integer, description: n counts. It counts some.}}}", "spec.x: removed (was object)|spec.z: added (object)"},
		{"a moved subtree in an existing object", "net: {" + three + "}, host: {type: object}", "host: {type: object, properties: {net: {" + three + "}}}", "spec.host.net: moved, was in spec"},
		{"a subtree without descriptions", "net: {" + three + "}", "network: {" + three + "}", "spec.network: renamed, was spec.net"},
		{"a small subtree of another name", "net: {type: object, properties: {name: {type: string}, namespace: {type: string}}}", "disk: {type: object, properties: {name: {type: string}, namespace: {type: string}}}",
			"spec.net: removed (was object)|spec.disk: added (object)"},
		{"two candidates", "old: {type: string, description: The name.}", "x: {type: string, description: The name.}, z: {type: string, description: The name.}",
			"spec.old: removed (was string)|spec.x, spec.z: added (string)"},
		{"a moved subtree and another like it", "net: {description: The net., " + three + "}, host: {type: object}", "host: {type: object, properties: {net: {description: The net., " + three + "}}}, link: {description: The net., " + three + "}",
			"spec.net: removed (was object)|spec.host.net, spec.link: added (object)"},
		{"a general description elsewhere", "a: {type: object, properties: {name: {type: string, description: A name.}}}, b: {type: object}",
			"a: {type: object}, b: {type: object, properties: {name: {type: string, description: A name.}}}", "spec.a.name: removed (was string)|spec.b.name: added (string)"},
		{"renamed and changed", "old: {type: integer, description: The size., maximum: 3}", "new: {type: integer, description: The size., maximum: 2}", "spec.new: renamed, was spec.old|spec.new: maximum 2, was maximum 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			version := func(name string, stored bool, fields string) string {
				return fmt.Sprintf("{name: %s, served: true, storage: %v, schema: {openAPIV3Schema: %s}}", name, stored, fmt.Sprintf(object, fields))
			}
			const webhook = "{strategy: Webhook, webhook: {conversionReviewVersions: [v1]}}"
			before := fmt.Sprintf(crd, "", "", webhook, version("v1alpha4", true, tc.before))
			after := fmt.Sprintf(crd, "", "", webhook, version("v1alpha4", false, tc.before)+", "+version("v1beta1", true, tc.after))
			lines := linesOf(t, differenceOf(t, map[string][2]string{components: {before, after}}))
			want := []string{"For users: API", "Demo v1alpha4: served (was served, stored)", "Demo v1beta1: version added (served, stored)"}
			if changes := strings.Split(tc.want, "|"); len(changes) == 1 {
				want = append(want, "Demo v1alpha4 to v1beta1: "+tc.want)
			} else {
				want = append(append(want, "Demo v1alpha4 to v1beta1:"), changes...)
			}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Error(diff)
			}
			// Nothing converts the objects, so fields that are not in the new version are lost.
			lost := linesOf(t, differenceOf(t, map[string][2]string{components: {strings.ReplaceAll(before, webhook, "{}"), strings.ReplaceAll(after, webhook, "{}")}}))
			if lost[0] != "Upgrade notes" || !strings.Contains(strings.Join(lost[:3], "\n"), "Breaking: ") {
				t.Errorf("without a conversion, lines = %q, want breaking changes first", lost)
			}
		})
	}
}

// TestSameChangeIsOneLine checks that the same change in many templates, kinds, versions and fields is one line.
func TestSameChangeIsOneLine(t *testing.T) {
	files := map[string][2]string{}
	for _, flavor := range []string{"", "-a", "-b"} {
		for i, value := range []string{"1", "2"} {
			pair := files["cluster-template"+flavor+".yaml"]
			pair[i] = "kind: Demo\nmetadata: {name: x}\nspec: {size: " + value + "}\n---\nkind: Demo\nmetadata: {name: y}\nspec: {size: " + value + ", a: \"${V" + value + ":=1}\"}\n"
			files["cluster-template"+flavor+".yaml"] = pair
		}
	}
	definition := func(kind, fields string) string {
		text := fmt.Sprintf(crd, "", "", "{}", "{name: v1, served: true, schema: &s {openAPIV3Schema: "+fields+"}}, {name: v2, served: true, storage: true, schema: *s}")
		return strings.NewReplacer("Demo", kind, "demos", strings.ToLower(kind)+"s").Replace(text)
	}
	both := func(limit string) string {
		spec := "{type: object, properties: {spec: {type: object, properties: {a: {type: integer, default: " + limit + "}, b: {type: integer, default: " + limit + "}}}}}"
		return definition("Demo", spec) + "---\n" + definition("DemoTemplate", "{type: object, properties: {spec: {type: object, properties: {template: "+spec+"}}}}")
	}
	files[components] = [2]string{both("3"), both("4")}
	want := []string{
		"Upgrade notes",
		"May break: cluster-template-a.yaml, cluster-template-b.yaml, cluster-template.yaml: V1: removed, default was 1",
		"For users: Variables",
		"cluster-template-a.yaml, cluster-template-b.yaml, cluster-template.yaml: V2: added, default 1",
		"For users: Flavors and ClusterClasses",
		"Demo x, Demo y in cluster-template-a.yaml, cluster-template-b.yaml, cluster-template.yaml: spec.size: 2, was 1",
		`Demo y in cluster-template-a.yaml, cluster-template-b.yaml, cluster-template.yaml: spec.a: "${V2:=1}", was "${V1:=1}"`,
		"For users: API",
		"Demo, DemoTemplate (spec.template) v1, v2: spec.a, spec.b: default 4, was 3",
	}
	if diff := cmp.Diff(want, linesOf(t, differenceOf(t, files))); diff != "" {
		t.Error(diff)
	}
}

// TestStatusLimits checks that new limits of values that the manager writes are listed after changes for users.
func TestStatusLimits(t *testing.T) {
	definition := func(status string) string {
		return fmt.Sprintf(crd, "", "", "{}", "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {status: {type: object, properties: {"+status+"}}}}}}")
	}
	d := differenceOf(t, map[string][2]string{components: {
		definition("reason: {type: string}, ready: {type: boolean}, phase: {type: string, enum: [a]}"),
		definition("reason: {type: string, maxLength: 9, pattern: x}, phase: {type: string, enum: [a, b]}"),
	}})
	want := []string{
		"Upgrade notes", "May break: Demo v1: status.ready: removed (was boolean)",
		"For users: API", `Demo v1: status.phase: values added: "b"`,
		"Other changes: Limits of the status, which the manager writes", "Demo v1:", "status.reason: added: maxLength 9", "status.reason: pattern added: x",
	}
	if diff := cmp.Diff(want, linesOf(t, d)); diff != "" {
		t.Error(diff)
	}
}

// TestNewLimitsLast checks that new limits are the last breaking changes, as most values are within them.
func TestNewLimitsLast(t *testing.T) {
	definition := func(spec string) string {
		return fmt.Sprintf(crd, "", "", "{}", "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {"+spec+"}}}}}}")
	}
	variable := "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: ${NAME:=x}}\n"
	d := differenceOf(t, map[string][2]string{components: {
		definition("a: {type: string, minLength: 1}, z: {type: string}") + variable,
		definition("a: {type: string, minLength: 2, maxLength: 9}"),
	}})
	want := []string{
		"Upgrade notes",
		"Demo v1:", "Breaking: spec.a: minLength 2, was minLength 1", "Breaking: spec.z: removed (was string)",
		"May break: " + components + ": NAME: removed, default was x",
		"Breaking: Demo v1: spec.a: added: maxLength 9",
	}
	if lines := linesOf(t, d); !slices.Equal(lines[:min(len(lines), len(want))], want) {
		t.Error(cmp.Diff(want, lines))
	}
}

// TestNewKindsFirst checks that new kinds are listed before changes of other kinds.
func TestNewKindsFirst(t *testing.T) {
	definition := func(kind string) string {
		text := fmt.Sprintf(crd, "", "", "{}", "{name: v1, served: true, storage: true}")
		return strings.NewReplacer("Demo", kind, "demos", strings.ToLower(kind)+"s").Replace(text)
	}
	changed := strings.Replace(definition("Alpha"), "storage: true", "storage: true, subresources: {status: {}}", 1)
	want := []string{"For users: API", "Zeta: kind added", `Alpha v1: subresources: added: {"status":{}}`}
	if diff := cmp.Diff(want, linesOf(t, differenceOf(t, map[string][2]string{components: {definition("Alpha"), changed + "---\n" + definition("Zeta")}}))); diff != "" {
		t.Error(diff)
	}
}

// TestNewFlavorsFirst checks that new flavors are listed before changes of other flavors.
func TestNewFlavorsFirst(t *testing.T) {
	flavor := func(size string) string { return "kind: Demo\nmetadata: {name: x}\nspec: {size: " + size + "}\n" }
	want := []string{"For users: Flavors and ClusterClasses", "cluster-template-z.yaml: flavor added", "Demo x in cluster-template-a.yaml: spec.size: 2, was 1"}
	d := differenceOf(t, map[string][2]string{"cluster-template-a.yaml": {flavor("1"), flavor("2")}, "cluster-template-z.yaml": {"", flavor("1")}})
	if diff := cmp.Diff(want, linesOf(t, d)); diff != "" {
		t.Error(diff)
	}
}

// TestRenamedInTemplate checks that a rename in a template and in its kind is one line, with the paths of the kind.
func TestRenamedInTemplate(t *testing.T) {
	both := func(name string) string {
		definition := func(kind, fields string) string {
			text := fmt.Sprintf(crd, "", "", "{}", "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: "+fields+"}}")
			return strings.NewReplacer("Demo", kind, "demos", strings.ToLower(kind)+"s").Replace(text)
		}
		spec := "{type: object, properties: {spec: {type: object, properties: {" + name + ": {type: string, description: The size.}}}}}"
		return definition("Demo", spec) + "---\n" + definition("DemoTemplate", "{type: object, properties: {spec: {type: object, properties: {template: "+spec+"}}}}")
	}
	want := []string{"Upgrade notes", "Breaking: Demo, DemoTemplate (spec.template) v1: spec.new: renamed, was spec.old"}
	if diff := cmp.Diff(want, linesOf(t, differenceOf(t, map[string][2]string{components: {both("old"), both("new")}}))); diff != "" {
		t.Error(diff)
	}
}

// TestMergeOnlySharedChanges checks that a merged line is true for each of its objects in each of its files.
func TestMergeOnlySharedChanges(t *testing.T) {
	files := map[string][2]string{
		"cluster-template-a.yaml": {"kind: Demo\nmetadata: {name: x}\nspec: {size: 1}\n", "kind: Demo\nmetadata: {name: x}\nspec: {size: 2}\n"},
		"cluster-template-b.yaml": {"kind: Demo\nmetadata: {name: y}\nspec: {size: 1}\n", "kind: Demo\nmetadata: {name: y}\nspec: {size: 2}\n"},
	}
	want := []string{"For users: Flavors and ClusterClasses", "Demo x in cluster-template-a.yaml: spec.size: 2, was 1", "Demo y in cluster-template-b.yaml: spec.size: 2, was 1"}
	if diff := cmp.Diff(want, linesOf(t, differenceOf(t, files))); diff != "" {
		t.Error(diff)
	}
}

// TestSeriesOrder checks that release series are in the order of their versions.
func TestSeriesOrder(t *testing.T) {
	list := apiVersion + "releaseSeries:\n- {major: 0, minor: 1, contract: v1beta1}\n"
	d := differenceOf(t, map[string][2]string{"metadata.yaml": {list, list + "- {major: 0, minor: 10, contract: v1beta1}\n- {major: 0, minor: 9, contract: v1beta1}\n- {major: 1, minor: 0, contract: v1beta1}\n"}})
	var names []string
	for _, s := range d.Series {
		names = append(names, s.Series)
	}
	if diff := cmp.Diff([]string{"v0.9", "v0.10", "v1.0"}, names); diff != "" {
		t.Error(diff)
	}
}

// TestMarkdownValues checks that Markdown contains the whole value, and that nothing in it is read as Markdown or
// HTML.
func TestMarkdownValues(t *testing.T) {
	for _, value := range []string{
		"plain", strings.Repeat("long ", 100) + "end", "a|b `c` *d* <e>&amp; [f](g) @user #12 ${A}$", "``", "two\nlines", " spaces ", "\\", "${X}|<br>", "",
	} {
		d := differenceOf(t, map[string][2]string{components: {"a: ${A:=1}", "a: ${A:=1}\n"}})
		d.Variables = []VariableChange{{Name: "A", Kind: Changed, Before: new(string), After: &value}}
		shown := value
		if value == "" {
			shown = `""`
		}
		text := written(t, d, "markdown")
		_, text, ok := strings.Cut(text, "`A`: default ")
		text, _, hasBefore := strings.Cut(text, ", was `\"\"`\n")
		if !ok || !hasBefore {
			t.Fatalf("%q is written as %q", value, written(t, d, "markdown"))
		}
		if span, isCode := strings.CutPrefix(text, "`"); isCode {
			if got := strings.TrimSuffix(span, "`"); got != shown || strings.ContainsAny(got, "`\n") {
				t.Errorf("code span of %q = %q, want %q", value, got, shown)
			}
			continue
		}
		inside := strings.TrimSuffix(strings.TrimPrefix(text, "<code>"), "</code>")
		bare := strings.ReplaceAll(inside, "<br>", "")
		if strings.ContainsAny(bare, "`*_[]<>@|\n$\\") {
			t.Errorf("HTML of %q = %q, want all special characters escaped", value, inside)
		}
		if got := strings.ReplaceAll(html.UnescapeString(strings.ReplaceAll(inside, "<br>", "\n")), "\u00a0", " "); got != shown {
			t.Errorf("HTML of %q is displayed as %q, want %q", value, got, shown)
		}
	}
}

// TestClassVariables checks that the variables of a ClusterClass are compared as schemas.
func TestClassVariables(t *testing.T) {
	class := func(list string) string {
		return "apiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterClass\nmetadata: {name: c}\nspec: {variables: [" + list + "]}\n"
	}
	d := differenceOf(t, map[string][2]string{"clusterclass-c.yaml": {
		class("{name: status, schema: {openAPIV3Schema: {type: string}}}, {name: size, schema: {openAPIV3Schema: {type: integer, maximum: 4}}}"),
		class("{name: new, required: true, schema: {openAPIV3Schema: {type: string}}}, {name: size, schema: {openAPIV3Schema: {type: integer, maximum: 5}}}"),
	}})
	want := []string{
		"Upgrade notes", "ClusterClass c:", "Breaking: new: added (string, required)", "Breaking: status: removed (was string)",
		"For users: Variables", "ClusterClass c: size: maximum 5, was maximum 4",
	}
	if diff := cmp.Diff(want, linesOf(t, d)); diff != "" {
		t.Error(diff)
	}
}

// TestBreakingChanges checks that breaking changes come first, and that all formats mark the same number of them;
// lines with the same change count once.
func TestBreakingChanges(t *testing.T) {
	d := sample(t).Differences[0]
	want := map[Narrowing]int{}
	for _, n := range d.notes() {
		want[n.breaks]++
	}
	if want[Narrows] == 0 || want[Perhaps] == 0 {
		t.Fatalf("the sample has too few breaking changes: %v", want)
	}
	var decoded any
	if err := json.Unmarshal([]byte(written(t, d, "json")), &decoded); err != nil {
		t.Fatal(err)
	}
	marks := map[any]int{}
	countBreaks(decoded, marks)
	if marks["yes"] != want[Narrows] || marks["perhaps"] != want[Perhaps] {
		t.Errorf("JSON marks %v, want %v", marks, want)
	}
	for format, marks := range map[string][2]string{"text": {"Breaking: ", "May break: "}, "markdown": {"**Breaking:** ", "**May break:** "}} {
		text := written(t, d, format)
		if strings.Count(text, marks[0]) != want[Narrows] || strings.Count(text, marks[1]) != want[Perhaps] {
			t.Errorf("%s has %d and %d marks, want %v", format, strings.Count(text, marks[0]), strings.Count(text, marks[1]), want)
		}
		if strings.LastIndex(text, marks[1]) > strings.Index(text, "For users") {
			t.Errorf("%s: the breaking changes do not come first:\n%s", format, text)
		}
	}
}

// countBreaks counts the values of all fields with the name breaks.
func countBreaks(value any, counts map[any]int) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if name == "breaks" {
				counts[field]++
			}
			countBreaks(field, counts)
		}
	case []any:
		for _, item := range value {
			countBreaks(item, counts)
		}
	}
}
