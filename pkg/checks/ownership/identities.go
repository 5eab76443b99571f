package ownership

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// reportIdentities reports cluster-scoped kinds that clusters need and that no label moves.
func reportIdentities(ctx context.Context, s *checks.Subject, report checks.Report) error {
	inTemplates, err := needsInTemplates(ctx, s)
	if err != nil {
		return err
	}
	for _, crd := range s.CRDs() {
		if crd.Spec.Scope != apiextensionsv1.ClusterScoped || rendered.HasMoveLabel(crd.Labels) {
			continue
		}
		need, severity := needOf(s, crd, inTemplates)
		if need == "" {
			continue
		}
		report(checks.Finding{Place: crd.Place("metadata", "labels"), Severity: severity,
			Message: fmt.Sprintf("objects of the kind are cluster-scoped, %s, and the CRD has no label to move them: `clusterctl move` leaves them behind, although the clusters need them", need),
			Fix:     fmt.Sprintf("label the CRD %s: \"\", which also moves the Secrets that such an object owns", clusterctlv1.ClusterctlMoveHierarchyLabel)})
	}
	return nil
}

// credentialKind matches the names of kinds that hold credentials.
var credentialKind = regexp.MustCompile(`(Identity|Credentials?)$`)

// needOf says why clusters need objects of a kind, or returns "".
func needOf(s *checks.Subject, crd checks.CRD, inTemplates map[schema.GroupKind]string) (need string, severity checks.Severity) {
	refersToKind := func(name string, field *apiextensionsv1.JSONSchemaProps) bool {
		return isReferenceTo(crd.Spec.Names.Kind, name, field)
	}
	for _, other := range s.CRDs() {
		if field := fieldOfSpec(other, refersToKind); field != "" && other.Name != crd.Name {
			return fmt.Sprintf("%s refers to them in %s", other.Spec.Names.Kind, field), checks.Warning
		}
	}
	for _, group := range []string{crd.Spec.Group, ""} {
		if need := inTemplates[schema.GroupKind{Group: group, Kind: crd.Spec.Names.Kind}]; need != "" {
			return need, checks.Warning
		}
	}
	if !isProvidersOwn(s, crd.Spec.Group) {
		return "", ""
	}
	if credentialKind.MatchString(crd.Spec.Names.Kind) {
		return "their name suggests credentials", checks.Warning
	}
	if field := fieldOfSpec(crd, isSecretReference); field != "" {
		return "they refer to a Secret in " + field, checks.Note // which may be one for all clusters
	}
	return "", ""
}

// needsInTemplates returns the kinds that templates contain or refer to, with the use. It skips objects with a label of
// their own, which are moved, and references without a group.
func needsInTemplates(ctx context.Context, s *checks.Subject) (map[schema.GroupKind]string, error) {
	all, err := rendered.All.Of(ctx, s)
	needs := map[schema.GroupKind]string{}
	add := func(gk schema.GroupKind, need string) {
		if needs[gk] == "" {
			needs[gk] = need
		}
	}
	for _, t := range all {
		for _, o := range t.Objects {
			if gk := o.GroupVersionKind().GroupKind(); rendered.IsClusterScoped(s, o) && !rendered.HasMoveLabel(o.GetLabels()) {
				add(gk, t.Name+" contains one")
			}
			for _, r := range rendered.SortedReferences(o) {
				add(r.GroupKind(), fmt.Sprintf("the %s in %s refers to one in %s", o.GetKind(), t.Name, manifest.FieldPath(r.Path...)))
			}
		}
	}
	return needs, err
}

// isProvidersOwn reports whether a group is Cluster API's or has a kind of a contract.
func isProvidersOwn(s *checks.Subject, group string) bool {
	return strings.HasSuffix("."+group, "."+clusterv1.GroupVersion.Group) ||
		slices.ContainsFunc(installed.Implementations(s), func(i *contract.Implementation) bool { return i.CRD != nil && i.CRD.Spec.Group == group })
}

// schemaMatch reports whether a field matches.
type schemaMatch func(name string, field *apiextensionsv1.JSONSchemaProps) bool

// fieldOfSpec returns the path of the first matching field in the spec of a kind, or "".
func fieldOfSpec(crd checks.CRD, matches schemaMatch) string {
	for _, version := range crd.Spec.Versions {
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil || !version.Served {
			continue
		}
		if spec, ok := version.Schema.OpenAPIV3Schema.Properties["spec"]; ok {
			if path := fieldBelow("spec", &spec, matches); path != "" {
				return path
			}
		}
	}
	return ""
}

// fieldBelow returns the path of the first matching field below a schema, or "".
func fieldBelow(path string, schema *apiextensionsv1.JSONSchemaProps, matches schemaMatch) string {
	if schema.Items != nil && schema.Items.Schema != nil {
		return fieldBelow(path, schema.Items.Schema, matches)
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property := schema.Properties[name]
		at := path + "." + name
		if matches(name, &property) {
			return at
		}
		if found := fieldBelow(at, &property, matches); found != "" {
			return found
		}
	}
	return ""
}

// secretField matches the names of fields that refer to a Secret.
var secretField = regexp.MustCompile(`(?i)secret(ref|reference|name)?$`)

// isSecretReference reports whether a field refers to a Secret: a map with a name, or a name.
func isSecretReference(field string, schema *apiextensionsv1.JSONSchemaProps) bool {
	if !secretField.MatchString(field) || strings.Contains(strings.ToLower(field), "pullsecret") {
		return false
	}
	_, hasName := schema.Properties["name"]
	return hasName || schema.Type == "string" && strings.HasSuffix(strings.ToLower(field), "name")
}

// isReferenceTo reports whether a field is a reference to objects of a kind: a map with a name.
func isReferenceTo(kind, field string, schema *apiextensionsv1.JSONSchemaProps) bool {
	if _, ok := schema.Properties["name"]; !ok {
		return false
	}
	for _, by := range []string{"kind", "type"} {
		for _, value := range schema.Properties[by].Enum {
			if named := strings.Trim(string(value.Raw), `"`); named != "" && strings.HasSuffix(kind, named) {
				return true
			}
		}
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(field, "Reference"), "Ref")
	return stem != field && len(stem) >= len("identity") && strings.HasSuffix(strings.ToLower(kind), strings.ToLower(stem))
}
