package checks

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
)

var crdCABundle = Check{
	ID: "crd-ca-bundle", Group: Components, Severity: Error,
	Title:  "The caBundle of a conversion webhook is a certificate, or is left out",
	Source: "Kubernetes 1.31 changelog, API Change, caBundle of a CustomResourceDefinition",
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			if !convertedByWebhook(crd) {
				continue
			}
			invalid := crdupdate.InvalidCABundle(&crd.CustomResourceDefinition)
			if invalid == nil {
				continue
			}
			f := Finding{Place: crd.Place("spec", "conversion", "webhook", "clientConfig", "caBundle"),
				Message: "the caBundle is not a certificate in PEM (" + invalid.Detail + "): Kubernetes 1.31 and newer refuse it in the place of the CA that a cluster has there, so clusterctl upgrade to this release stops at the CRD, with the old manager deleted; only a new installation is possible",
				Fix:     "leave the caBundle out: clusterctl then keeps the one that the cluster has, and cert-manager writes it where there is none"}
			if !s.injectsCA(crd.Document) {
				f.Message = "the caBundle is not a certificate in PEM (" + invalid.Detail + "), and no annotation lets cert-manager replace it: Kubernetes 1.31 and newer do not serve the CRD, and refuse the caBundle where the CRD is installed with a CA"
				f.Fix = "leave the caBundle out, and annotate the CRD with " + injectCAFrom + ": NAMESPACE/CERTIFICATE"
			}
			report(f)
		}
	},
}

// convertedByWebhook says whether a webhook converts the versions of a definition.
func convertedByWebhook(crd CRD) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}
