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

// Implementations are the kinds of the release that play a part in the contract. There are none
// where the components can't be read: what is missing from them may be in the part that is not read.
var Implementations = checks.OnceValue(func(s *checks.Subject) []*contract.Implementation {
	if len(s.Objects()) == 0 {
		return nil
	}
	return contract.Implementations(s.Release.Provider.Type, s.CRDs())
})

// ContractKindOf returns which resource of a contract a CRD defines, and whether it is its template;
// ok is false for a CRD that core Cluster API has nothing to do with. IPAM pools are among these:
// they are found by their group, and carry no contract label, rightly.
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

// WellKnownGroups are those that the core controllers' own role is for.
// Source: Cluster API, config/rbac/role.yaml.
var WellKnownGroups = []string{
	"infrastructure." + clusterv1.GroupVersion.Group,
	"bootstrap." + clusterv1.GroupVersion.Group,
	"controlplane." + clusterv1.GroupVersion.Group,
}

// ConvertedByWebhook says whether a webhook converts the versions of a definition.
func ConvertedByWebhook(crd checks.CRD) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

// ContractPrefix begins the labels by which CRDs say which contract their versions implement.
var ContractPrefix = clusterv1.GroupVersion.Group + "/"

// ContractLabels returns the contracts that a CRD is labelled with, and the versions of each.
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

// CurrentLabel returns the contract by which core Cluster API reads a CRD today: the newest that it
// knows of those the CRD is labelled with, or "".
func CurrentLabel(crd checks.CRD) string {
	labels := ContractLabels(crd)
	for _, contract := range []string{clusterv1.GroupVersion.Version, "v1beta1"} {
		if versions := labels[contract]; len(versions) > 0 && versions[0] != "" {
			return contract
		}
	}
	return ""
}

// publishedPaths are fields of definitions as the API server's own type has them, and as they are
// published.
var publishedPaths = []struct{ internal, published string }{
	{"spec.validation", "spec.versions[0].schema"},
	{"spec.subresources", "spec.versions[0].subresources"},
	{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
	{"spec.selectableFields", "spec.versions[0].selectableFields"},
	{"spec.conversion.conversionReviewVersions", "spec.conversion.webhook.conversionReviewVersions"},
	{"spec.conversion.webhookClientConfig", "spec.conversion.webhook.clientConfig"},
}

// PublishedPath returns the path in the published definition of what the API server names: what all
// versions have alike, it has once.
func PublishedPath(path string) string {
	for _, p := range publishedPaths {
		if rest, ok := strings.CutPrefix(path, p.internal); ok {
			return p.published + rest
		}
	}
	return path
}

// Reason returns what the API server says, without the values that are more than a text or number.
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
