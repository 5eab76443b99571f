package installed

import (
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The annotations from which cert-manager's CA injector takes the value of caBundle.
const (
	InjectCAFrom       = "cert-manager.io/inject-ca-from"
	injectCAFromSecret = "cert-manager.io/inject-ca-from-secret" //nolint:gosec // an annotation's name
	injectAPIServerCA  = "cert-manager.io/inject-apiserver-ca"
)

// webhookResources are the plural names of the resources with a caBundle.
var webhookResources = map[string][2]string{
	"MutatingWebhookConfiguration":   {"admissionregistration.k8s.io", "mutatingwebhookconfigurations"},
	"ValidatingWebhookConfiguration": {"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
	"CustomResourceDefinition":       {"apiextensions.k8s.io", "customresourcedefinitions"},
}

// InjectsCA reports whether a component writes the caBundle of an object in a cluster: cert-manager, or the provider
// itself at run time.
func InjectsCA(s *checks.Subject, d *manifest.Document) bool {
	annotations := d.Object.GetAnnotations()
	if annotations[InjectCAFrom] != "" || annotations[injectCAFromSecret] != "" || annotations[injectAPIServerCA] != "" {
		return true
	}
	resource := webhookResources[d.Object.GetKind()]
	return slices.ContainsFunc(Rules(s, "ClusterRole"), func(r Rule) bool {
		return r.Grants(resource[0], resource[1], "update") || r.Grants(resource[0], resource[1], "patch")
	})
}
