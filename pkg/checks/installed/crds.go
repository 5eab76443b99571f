package installed

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// Implementations are the kinds of the release that have a role in the contract. The list is empty if the components
// can't be read completely, because missing kinds may be in the unread part.
var Implementations = checks.OnceValue(func(s *checks.Subject) []*contract.Implementation {
	if len(s.Objects()) == 0 {
		return nil
	}
	return contract.Implementations(s.Release.Provider.Type, s.CRDs())
})

// ContractKindOf returns the resource of a contract that a CRD defines, and whether the CRD is its template. ok is
// false for a CRD that core Cluster API does not work with, such as IPAM pools, which are found by their group and need
// no contract label.
func ContractKindOf(s *checks.Subject, crd checks.CRD) (resource contract.Resource, template, ok bool) {
	for _, i := range Implementations(s) {
		switch {
		case i.Resource == contract.IPAM:
		case i.CRD != nil && i.CRD.Document == crd.Document:
			return i.Resource, false, true
		case i.Template != nil && i.Template.Document == crd.Document:
			return i.Resource, true, true
		}
	}
	return "", false, false
}

// SchemaField returns the schema of a field in a version of a CRD, or nil.
func SchemaField(version apiextensionsv1.CustomResourceDefinitionVersion, path ...string) *apiextensionsv1.JSONSchemaProps {
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil
	}
	schema := version.Schema.OpenAPIV3Schema
	for _, step := range path {
		next, ok := schema.Properties[step]
		if !ok {
			return nil
		}
		schema = &next
	}
	return schema
}

// ServedVersions returns the versions of a CRD that the API server serves.
func ServedVersions(crd checks.CRD) []apiextensionsv1.CustomResourceDefinitionVersion {
	var served []apiextensionsv1.CustomResourceDefinitionVersion
	for _, v := range crd.Spec.Versions {
		if v.Served {
			served = append(served, v)
		}
	}
	return served
}

// WellKnownGroups are the groups in the core controllers' own role.
// Source: Cluster API, config/rbac/role.yaml.
var WellKnownGroups = []string{
	"infrastructure." + clusterv1.GroupVersion.Group,
	"bootstrap." + clusterv1.GroupVersion.Group,
	"controlplane." + clusterv1.GroupVersion.Group,
}

// ConvertedByWebhook reports whether a webhook converts the versions of a CRD.
func ConvertedByWebhook(crd checks.CRD) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

// ContractPrefix is the prefix of the labels that declare the contracts of a CRD's versions.
var ContractPrefix = clusterv1.GroupVersion.Group + "/"

// ContractLabels returns the contracts in a CRD's labels, and the versions of each.
func ContractLabels(crd checks.CRD) map[string][]string {
	labels := map[string][]string{}
	for label, value := range crd.Object.GetLabels() {
		contract, ok := strings.CutPrefix(label, ContractPrefix)
		if ok && slices.Contains(metadata.KnownContracts(), contract) {
			labels[contract] = strings.Split(value, "_")
		}
	}
	return labels
}

// CurrentLabel returns the contract that core Cluster API uses for a CRD today: the newest one in its labels that core
// knows, or "".
func CurrentLabel(crd checks.CRD) string {
	labels := ContractLabels(crd)
	for _, contract := range []string{clusterv1.GroupVersion.Version, "v1beta1"} {
		if versions := labels[contract]; len(versions) > 0 && versions[0] != "" {
			return contract
		}
	}
	return ""
}

// publishedPaths map fields of the API server's internal type of a CRD to their published paths.
var publishedPaths = []struct{ internal, published string }{
	{"spec.validation", "spec.versions[0].schema"},
	{"spec.subresources", "spec.versions[0].subresources"},
	{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
	{"spec.selectableFields", "spec.versions[0].selectableFields"},
	{"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"},
	{"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"},
}

// PublishedPath returns the path in the published CRD of a path that the API server names: the internal type has fields
// once that all versions share.
func PublishedPath(path string) string {
	for _, p := range publishedPaths {
		if rest, ok := strings.CutPrefix(path, p.internal); ok {
			return p.published + rest
		}
	}
	return path
}

// Reason returns the message of the API server without values that are larger than a text or number.
func Reason(e *field.Error) string {
	switch e.BadValue.(type) {
	case string, bool, int, int64, float64:
		return e.ErrorBody()
	}
	if e.Detail == "" {
		return e.Type.String()
	}
	return e.Type.String() + ": " + e.Detail
}
