package checks_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// parityNamespace is the namespace that all pairs are installed in.
const parityNamespace = "parity-system"

var parityProvider = release.Provider{Name: "parity", Type: clusterctlv1.InfrastructureProviderType}

// object is an object of a release, decoded from YAML.
type object = map[string]any

// upgradePair is two successive releases, generated at random.
type upgradePair struct {
	seed          uint64
	before, after *release.Release
}

// pairMaker generates the objects of a pair.
type pairMaker struct {
	*rand.Rand
	// prefix is part of all names, so that several pairs can share an API server.
	prefix string
	// ca is a CA certificate that some of the caBundle fields contain.
	ca []byte
}

// newUpgradePair returns the pair of a seed: the objects of the second release are those of the first
// with some changes.
func newUpgradePair(t *testing.T, seed uint64, ca []byte) upgradePair {
	t.Helper()
	m := &pairMaker{rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("s%d", seed), ca}
	before := m.objects()
	after := m.changed(before)
	for _, o := range after {
		if o["kind"] != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crdVersions(o) {
			specSchema(v)["properties"].(object)[inForceField] = object{"type": "boolean", "default": true}
		}
	}
	if m.chance(85) {
		namespace := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": parityNamespace}}
		before, after = append([]object{namespace}, before...), append([]object{namespace}, after...)
	}
	return upgradePair{seed, m.release(t, "v0.1.0", before), m.release(t, "v0.2.0", after)}
}

// release returns a release of these objects.
func (m *pairMaker) release(t *testing.T, version string, objects []object) *release.Release {
	t.Helper()
	var text strings.Builder
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("---\n" + string(data))
	}
	r, err := release.New(parityProvider, version, []release.File{
		{Name: parityProvider.ComponentsFile(), Data: []byte(text.String())},
		{Name: release.MetadataFile, Data: []byte("apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 0, minor: 1, contract: v1beta2}\n- {major: 0, minor: 2, contract: v1beta2}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// chance returns true with a probability of percent/100.
func (m *pairMaker) chance(percent int) bool { return m.IntN(100) < percent }

// one returns one of the values, chosen at random.
func one[T any](m *pairMaker, values ...T) T { return values[m.IntN(len(values))] }

// objects returns the objects of a release.
func (m *pairMaker) objects() []object {
	// The manager's ServiceAccount also determines the namespace of a release without a Namespace object.
	all := []object{{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": m.prefix + "-manager", "namespace": parityNamespace}}}
	all = append(all, m.crd(0))
	if m.chance(30) {
		all = append(all, m.crd(1))
	}
	for _, kind := range otherKinds {
		if m.chance(15) || slices.Contains(clusterScoped, kind) && m.chance(20) {
			all = append(all, m.other(kind))
		}
	}
	return all
}

// changed returns the objects of the next release.
func (m *pairMaker) changed(before []object) []object {
	var after []object
	for i, old := range before {
		o := clone(old)
		if i == 0 {
			after = append(after, o)
			continue
		}
		isCRD := o["kind"] == "CustomResourceDefinition"
		switch n := m.IntN(100); {
		case n < 7:
			continue // the object is removed
		case n < 12 && !isCRD:
			metadata(o)["name"] = metadata(o)["name"].(string) + "-new"
		case isCRD:
			for range m.IntN(4) {
				one(m, crdChanges...)(m, o)
			}
		case n < 50:
			changeOther(m, o)
		}
		after = append(after, o)
	}
	for _, kind := range otherKinds {
		if m.chance(5) {
			o := m.other(kind)
			metadata(o)["name"] = metadata(o)["name"].(string) + "-added"
			after = append(after, o)
		}
	}
	return after
}

func clone(o object) object { return cloneValue(o).(object) }

func cloneValue(v any) any {
	switch v := v.(type) {
	case object:
		c := object{}
		for key, value := range v {
			c[key] = cloneValue(value)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i := range v {
			c[i] = cloneValue(v[i])
		}
		return c
	}
	return v
}

func metadata(o object) object { return o["metadata"].(object) }

// child returns the object in a field, and creates it if it is missing.
func child(o object, name string) object {
	c, ok := o[name].(object)
	if !ok {
		c = object{}
		o[name] = c
	}
	return c
}

// crd returns a CustomResourceDefinition with one to three versions.
func (m *pairMaker) crd(number int) object {
	singular := fmt.Sprintf("thing%d", number)
	versions := slices.Clone([]string{"v1alpha1", "v1beta1", "v1beta2", "v1"}[m.IntN(2):][:1+m.IntN(3)])
	stored := m.IntN(len(versions))
	var list []any
	for i, name := range versions {
		list = append(list, object{
			"name": name, "served": i == stored || m.chance(80), "storage": i == stored,
			"schema": object{"openAPIV3Schema": m.schema()},
		})
	}
	group := m.prefix + ".cluster.x-k8s.io"
	o := object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": object{"name": singular + "s." + group, "labels": object{}, "annotations": object{}},
		"spec": object{
			"group": group, "scope": one(m, "Namespaced", "Cluster"),
			"names":    object{"kind": fmt.Sprintf("Thing%d", number), "listKind": fmt.Sprintf("Thing%dList", number), "plural": singular + "s", "singular": singular},
			"versions": list,
		},
	}
	changeContract(m, o)
	if m.chance(40) {
		changeConversion(m, o)
	}
	if m.chance(40) {
		changeInjection(m, o)
	}
	return o
}

// fields are the possible fields of a schema, with the possible schemas of each field.
var fields = map[string][]object{
	"size":   {{"type": "string", "enum": []any{"small", "large"}}, {"type": "string", "enum": []any{"large"}}, {"type": "string"}},
	"count":  {{"type": "integer"}, {"type": "integer", "minimum": int64(3)}, {"type": "string"}},
	"zone":   {{"type": "string"}, {"type": "string", "maxLength": int64(2)}},
	"tags":   {{"type": "array", "items": object{"type": "string"}}, {"type": "array", "maxItems": int64(1), "items": object{"type": "string"}}},
	"paused": {{"type": "boolean"}, {"type": "boolean", "default": false}},
}

// fieldNames are the names of fields, in order.
var fieldNames = []string{"count", "paused", "size", "tags", "zone"}

// inForceField is a field with a default that only the schemas of the second releases have: once an object has
// the field, the API server uses the new schema.
const inForceField = "inForce"

// valueOf returns a value that a field's schema accepts, and that narrower schemas of the field refuse.
func valueOf(field string, form object) any {
	_, limited := form["maxItems"]
	switch {
	case form["enum"] != nil:
		return form["enum"].([]any)[0]
	case form["minimum"] != nil:
		return form["minimum"]
	case form["maxLength"] != nil:
		return "zo"
	case form["type"] == "integer":
		return int64(1)
	case form["type"] == "boolean":
		return true
	case limited:
		return []any{"a"}
	case form["type"] == "array":
		return []any{"a", "b"}
	}
	return field + " of any text"
}

// schema returns a schema with some of the fields.
func (m *pairMaker) schema() object {
	properties := object{}
	for _, name := range fieldNames {
		if m.chance(60) {
			properties[name] = clone(one(m, fields[name]...))
		}
	}
	return object{"type": "object", "properties": object{
		"spec": object{"type": "object", "properties": properties}, "status": object{"type": "object"},
	}}
}

func crdVersions(o object) []any { return o["spec"].(object)["versions"].([]any) }

// specSchema returns the schema of the spec of a version.
func specSchema(version any) object {
	return version.(object)["schema"].(object)["openAPIV3Schema"].(object)["properties"].(object)["spec"].(object)
}

// crdChanges are the possible changes of a CustomResourceDefinition.
var crdChanges = []func(m *pairMaker, o object){
	changeContract, changeConversion, changeConversion, changeInjection, changeField, changeField, changeField, changeField, changeField, requireField, requireField,
	addVersion, removeVersion, storeOther, serveOther, changeNames, changeScope, changeAppearance, func(*pairMaker, object) {},
}

func changeContract(m *pairMaker, o object) {
	labels := child(metadata(o), "labels")
	for _, contract := range []string{"v1beta1", "v1beta2"} {
		switch m.IntN(4) {
		case 0:
			delete(labels, "cluster.x-k8s.io/"+contract)
		case 1:
			labels["cluster.x-k8s.io/"+contract] = ""
		default:
			labels["cluster.x-k8s.io/"+contract] = crdVersions(o)[0].(object)["name"]
		}
	}
}

func changeConversion(m *pairMaker, o object) {
	spec := o["spec"].(object)
	client := object{}
	switch m.IntN(7) {
	case 0:
		delete(spec, "conversion")
		return
	case 1:
		spec["conversion"] = object{"strategy": "None"}
		return
	case 2:
		client["url"] = "https://webhook.example.com/convert"
	default:
		client["service"] = object{"name": m.prefix + "-webhook", "namespace": parityNamespace, "path": "/convert"}
	}
	spec["conversion"] = object{"strategy": "Webhook", "webhook": object{"clientConfig": client, "conversionReviewVersions": []any{"v1"}}}
	switch m.IntN(6) {
	case 0:
		client["caBundle"] = base64.StdEncoding.EncodeToString(m.ca)
	case 1:
		client["caBundle"] = "Cg=="
	}
}

func changeInjection(m *pairMaker, o object) {
	annotations := child(metadata(o), "annotations")
	if m.chance(60) {
		annotations["cert-manager.io/inject-ca-from"] = parityNamespace + "/" + m.prefix + "-serving-cert"
	} else {
		delete(annotations, "cert-manager.io/inject-ca-from")
	}
}

// version returns a version of a CustomResourceDefinition, usually the stored one.
func (m *pairMaker) version(o object) any {
	versions := crdVersions(o)
	if m.chance(60) {
		return versions[slices.IndexFunc(versions, func(v any) bool { return v.(object)["storage"] == true })]
	}
	return one(m, versions...)
}

func changeField(m *pairMaker, o object) {
	schema := specSchema(m.version(o))
	properties := schema["properties"].(object)
	name := one(m, fieldNames...)
	if m.chance(40) {
		delete(properties, name)
		delete(schema, "required")
	} else {
		properties[name] = clone(one(m, fields[name]...))
	}
}

func requireField(m *pairMaker, o object) {
	schema := specSchema(m.version(o))
	if names := slices.Sorted(maps.Keys(schema["properties"].(object))); len(names) > 0 {
		schema["required"] = []any{one(m, names...)}
	}
}

func addVersion(m *pairMaker, o object) {
	name := one(m, "v1alpha2", "v1beta3", "v2")
	versions := crdVersions(o)
	if !slices.ContainsFunc(versions, func(v any) bool { return v.(object)["name"] == name }) {
		o["spec"].(object)["versions"] = append(versions, object{"name": name, "served": true, "storage": false, "schema": object{"openAPIV3Schema": m.schema()}})
	}
}

func removeVersion(m *pairMaker, o object) {
	versions := crdVersions(o)
	if len(versions) == 1 {
		addVersion(m, o)
		versions = crdVersions(o)
	}
	if len(versions) == 1 {
		return
	}
	i := m.IntN(len(versions))
	wasStored := versions[i].(object)["storage"] == true
	versions = slices.Delete(slices.Clone(versions), i, i+1)
	if wasStored {
		versions[0].(object)["storage"] = true
	}
	o["spec"].(object)["versions"] = versions
}

func storeOther(m *pairMaker, o object) {
	stored := m.IntN(len(crdVersions(o)))
	for i, v := range crdVersions(o) {
		v.(object)["storage"] = i == stored
	}
}

func serveOther(m *pairMaker, o object) {
	v := one(m, crdVersions(o)...).(object)
	v["served"] = v["served"] != true
}

func changeNames(m *pairMaker, o object) {
	names := o["spec"].(object)["names"].(object)
	switch m.IntN(5) {
	case 0:
		names["kind"] = "Renamed"
	case 1:
		names["listKind"] = "ListOfThings"
	case 2:
		names["singular"] = "oneofthem"
	case 3:
		names["shortNames"] = []any{"th"}
	default:
		names["categories"] = []any{"cluster-api"}
	}
}

func changeScope(m *pairMaker, o object) {
	o["spec"].(object)["scope"] = one(m, "Namespaced", "Cluster")
}

// changeAppearance adds a status subresource or a printer column to a version.
func changeAppearance(m *pairMaker, o object) {
	v := one(m, crdVersions(o)...).(object)
	if m.chance(50) {
		v["subresources"] = object{"status": object{}}
	} else {
		v["additionalPrinterColumns"] = []any{object{"name": "Size", "type": "string", "jsonPath": ".spec.size"}}
	}
}

// otherKinds are the kinds other than CustomResourceDefinition. A kind that is listed twice is twice as likely.
var otherKinds = []string{
	"ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment", "DaemonSet", "StatefulSet", "Role", "RoleBinding",
	"ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding", "PriorityClass", "RuntimeClass", "StorageClass", "CSIDriver",
	"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
}

// apiVersions are the API versions of the kinds that are not in v1.
var apiVersions = map[string]string{
	"Deployment": "apps/v1", "DaemonSet": "apps/v1", "StatefulSet": "apps/v1",
	"Role": "rbac.authorization.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1",
	"ClusterRole": "rbac.authorization.k8s.io/v1", "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
	"PriorityClass": "scheduling.k8s.io/v1", "RuntimeClass": "node.k8s.io/v1", "StorageClass": "storage.k8s.io/v1", "CSIDriver": "storage.k8s.io/v1",
	"ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
}

var clusterScoped = otherKinds[slices.Index(otherKinds, "ClusterRole"):]

// other returns a random object of a kind.
func (m *pairMaker) other(kind string) object {
	o := object{"apiVersion": "v1", "kind": kind, "metadata": object{"name": fmt.Sprintf("%s-%s%d", m.prefix, strings.ToLower(kind), m.IntN(1000))}}
	if version, ok := apiVersions[kind]; ok {
		o["apiVersion"] = version
	}
	if !slices.Contains(clusterScoped, kind) {
		metadata(o)["namespace"] = parityNamespace
	} else if m.chance(40) {
		metadata(o)["name"] = parityNamespace + "-" + metadata(o)["name"].(string)
	}
	changeOther(m, o)
	return o
}

// changeOther replaces the contents of an object with random ones.
func changeOther(m *pairMaker, o object) {
	subjects := []any{object{"kind": "ServiceAccount", "name": m.prefix + "-manager", "namespace": parityNamespace}}
	rules := []any{object{"apiGroups": []any{""}, "resources": []any{one(m, "secrets", "configmaps")}, "verbs": []any{"get"}}}
	switch kind := o["kind"]; kind {
	case "ConfigMap":
		o["data"], o["immutable"] = object{"a": one(m, "1", "2")}, m.chance(50)
	case "Secret":
		o["stringData"], o["type"], o["immutable"] = object{"a": one(m, "1", "2")}, one(m, "Opaque", "example.com/key"), m.chance(50)
	case "Service":
		o["spec"] = object{"selector": object{"app": one(m, "a", "b")}, "ports": []any{object{"port": one(m, int64(443), int64(9443)), "name": one(m, "https", "webhook")}}, "type": one(m, "ClusterIP", "NodePort")}
		if m.chance(40) {
			o["spec"].(object)["type"], o["spec"].(object)["clusterIP"] = "ClusterIP", "None"
		}
	case "Deployment", "DaemonSet", "StatefulSet":
		labels := object{"app": one(m, "a", "b")}
		if m.chance(30) {
			labels["control-plane"] = "manager"
		}
		spec := object{"template": object{"metadata": object{"labels": labels}, "spec": object{"containers": []any{object{"name": "manager", "image": "registry.example.com/manager:" + one(m, "v1", "v2")}}}}}
		spec["selector"] = object{"matchLabels": clone(labels)}
		if kind == "StatefulSet" {
			spec["serviceName"] = "a"
		}
		o["spec"] = spec
	case "Role", "ClusterRole":
		o["rules"] = rules
		if kind == "ClusterRole" && m.chance(20) {
			o["rules"], o["aggregationRule"] = []any{}, object{"clusterRoleSelectors": []any{object{"matchLabels": object{"for": m.prefix}}}}
		} else {
			delete(o, "aggregationRule")
		}
	case "RoleBinding", "ClusterRoleBinding":
		o["subjects"] = subjects
		o["roleRef"] = object{"kind": "ClusterRole", "name": one(m, "manager", "view", "edit")}
		if m.chance(70) {
			o["roleRef"].(object)["apiGroup"] = "rbac.authorization.k8s.io"
		}
	case "PriorityClass":
		o["value"], o["description"] = one(m, int64(0), int64(1), int64(2)), one(m, "a", "b")
		delete(o, "preemptionPolicy")
		if m.chance(50) {
			o["preemptionPolicy"] = one(m, "PreemptLowerPriority", "Never")
		}
	case "RuntimeClass":
		o["handler"] = one(m, "a", "b")
	case "StorageClass":
		o["provisioner"], o["reclaimPolicy"] = one(m, "example.com/a", "example.com/b"), one(m, "Delete", "Retain")
		o["allowVolumeExpansion"] = m.chance(50)
		delete(o, "parameters")
		if m.chance(50) {
			o["parameters"] = object{one(m, "a", "b"): one(m, "1", "2")}
		}
	case "CSIDriver":
		o["spec"] = object{"requiresRepublish": m.chance(50)}
		if m.chance(50) {
			o["spec"].(object)["attachRequired"] = m.chance(50)
		}
		if m.chance(50) {
			o["spec"].(object)["volumeLifecycleModes"] = []any{one(m, "Persistent", "Ephemeral")}
		}
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		client := object{"service": object{"name": m.prefix + "-webhook", "namespace": parityNamespace, "path": one(m, "/a", "/b")}}
		switch m.IntN(3) {
		case 0:
			client["caBundle"] = "Cg=="
		case 1:
			client["caBundle"] = base64.StdEncoding.EncodeToString(m.ca)
		}
		changeInjection(m, o)
		o["webhooks"] = []any{object{
			"name": one(m, "a.example.com", "b.example.com"), "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "clientConfig": client,
			"rules": []any{object{"apiGroups": []any{m.prefix + ".cluster.x-k8s.io"}, "apiVersions": []any{"*"}, "resources": []any{"nothings"}, "operations": []any{"CREATE"}}},
		}}
	}
}
