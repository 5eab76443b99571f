package components

import (
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
)

var crdCABundle = checks.Check{
	ID: "crd-ca-bundle", Group: checks.Components, Severity: checks.Error,
	Title:  "The caBundle of a conversion webhook is a certificate, or is absent",
	Source: "Kubernetes 1.31 changelog, API Change, caBundle of a CustomResourceDefinition",
	Run: checks.Each((*checks.Subject).CRDs, func(s *checks.Subject, crd checks.CRD, report checks.Report) {
		if !installed.ConvertedByWebhook(crd) {
			return
		}
		invalid := crdupdate.InvalidCABundle(&crd.CustomResourceDefinition)
		if invalid == nil {
			return
		}
		f := checks.Finding{Place: crd.Place("spec", "conversion", "webhook", "clientConfig", "caBundle"),
			Message: "the caBundle is not a certificate in PEM (" + invalid.Detail + "): Kubernetes 1.31 and newer refuse it as a replacement of the CA in a cluster, so clusterctl upgrade to this release stops at the CRD, after the old manager is deleted; only a new installation is possible",
			Fix:     "leave the caBundle out: clusterctl then keeps the one that the cluster has, and cert-manager writes it where there is none"}
		if !installed.InjectsCA(s, crd.Document) {
			f.Message = "the caBundle is not a certificate in PEM (" + invalid.Detail + "), and no annotation lets cert-manager replace it: Kubernetes 1.31 and newer do not serve the CRD, and refuse the caBundle where the CRD is installed with a CA"
			f.Fix = "leave the caBundle out, and annotate the CRD with " + installed.InjectCAFrom + ": NAMESPACE/CERTIFICATE"
		}
		report(f)
	}),
}
