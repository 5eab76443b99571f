package checks

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The annotations by which cert-manager's CA injector finds what to put into caBundle.
const (
	injectCAFrom       = "cert-manager.io/inject-ca-from"
	injectCAFromSecret = "cert-manager.io/inject-ca-from-secret" //nolint:gosec // an annotation's name
	injectAPIServerCA  = "cert-manager.io/inject-apiserver-ca"
)

const (
	sourceInjection    = "cert-manager, CA Injector"
	sourceCertificates = "cert-manager, Certificate resource"
)

var caInjection = Check{
	ID: "ca-injection", Group: Components, Severity: Warning,
	Title:  "The API server can trust the webhooks",
	Source: sourceInjection,
	Run: func(s *Subject, report Report) {
		reportInjectionAnnotations(s, report)
		reported := map[*manifest.Document]bool{}
		for _, w := range s.webhooks() {
			if s.injectsCA(w.Document) || w.hasCA() || reported[w.Document] || w.service() == "" {
				continue
			}
			reported[w.Document] = true
			severity, consequence := Warning, "refuses what it is to see"
			if !w.called {
				severity, consequence = Note, "refuses all objects once the CRD has a second version"
			}
			report(Finding{
				Place: w.Place(w.path...), Severity: severity,
				Message: "there is no caBundle, and no annotation for cert-manager to inject one: the API server does not trust the webhook, and " + consequence,
				Fix:     fmt.Sprintf("annotate the object with %s: NAMESPACE/CERTIFICATE", injectCAFrom),
			})
		}
	},
}

// reportInjectionAnnotations reports annotations that clusterctl refuses, or that lead nowhere.
func reportInjectionAnnotations(s *Subject, report Report) {
	for _, d := range s.Objects("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition") {
		value, there := d.Object.GetAnnotations()[injectCAFrom]
		if !there {
			continue
		}
		place := d.Place("metadata", "annotations", injectCAFrom)
		parts := strings.Split(value, "/")
		switch {
		case len(parts) != 2:
			report(Finding{
				Place: place, Severity: Error,
				Message: fmt.Sprintf("the annotation is %q, and clusterctl refuses a file in which it is not NAMESPACE/CERTIFICATE", value),
				Fix:     "write the namespace and the name of the Certificate, with one slash",
			})
		case s.object("Certificate", parts[1]) == nil && !strings.Contains(parts[1], "$"):
			report(Finding{
				Place:   place,
				Message: fmt.Sprintf("Certificate %s is not in the file: no CA is injected, and the API server does not trust the webhook", parts[1]),
				Fix:     "add the Certificate, or name the one that is there",
			})
		}
	}
}

// hasCA says whether a webhook comes with a caBundle that the API server may be able to use. One of a
// CRD that it can't use is reported by crd-ca-bundle.
func (w webhook) hasCA() bool {
	bundle := manifest.Text(w.client, "caBundle")
	if bundle == "" || w.Object.GetKind() == "CustomResourceDefinition" {
		return bundle != ""
	}
	certificates, err := base64.StdEncoding.DecodeString(bundle)
	return err != nil || len(apiwebhook.ValidateCABundle(field.NewPath("caBundle"), certificates)) == 0
}

// webhookResources are the plural names of what has a caBundle.
var webhookResources = map[string][2]string{
	"MutatingWebhookConfiguration":   {"admissionregistration.k8s.io", "mutatingwebhookconfigurations"},
	"ValidatingWebhookConfiguration": {"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
	"CustomResourceDefinition":       {"apiextensions.k8s.io", "customresourcedefinitions"},
}

// injectsCA says whether something writes the caBundle of an object in a cluster: cert-manager, or
// the provider itself at run time.
func (s *Subject) injectsCA(d *manifest.Document) bool {
	annotations := d.Object.GetAnnotations()
	if annotations[injectCAFrom] != "" || annotations[injectCAFromSecret] != "" || annotations[injectAPIServerCA] != "" {
		return true
	}
	resource := webhookResources[d.Object.GetKind()]
	return slices.ContainsFunc(s.rules("ClusterRole"), func(r rule) bool {
		return r.grants(resource[0], resource[1], "update") || r.grants(resource[0], resource[1], "patch")
	})
}

var certificateDNS = Check{
	ID: "certificate-dns", Group: Components, Severity: Warning,
	Title:  "Certificates are for the names of the webhooks' Services",
	Source: sourceCertificates,
	Run: func(s *Subject, report Report) {
		reported := map[string]bool{}
		for _, w := range s.webhooks() {
			_, name, _ := strings.Cut(w.Object.GetAnnotations()[injectCAFrom], "/")
			certificate, service := s.object("Certificate", name), s.object("Service", w.service())
			if certificate == nil || service == nil {
				continue // ca-injection and webhook-service say so
			}
			namespace := targetNamespaceOf(s, service)
			host := fmt.Sprintf("%s.%s.svc", w.service(), namespace)
			names := manifest.Texts(certificate.Object.Object, "spec", "dnsNames")
			covered := slices.ContainsFunc(names, func(dns string) bool {
				return dns == host || dns == "*."+namespace+".svc" || strings.Contains(dns, "$")
			})
			if covered || reported[name+host] {
				continue
			}
			reported[name+host] = true
			report(Finding{
				Place:   certificate.Place("spec", "dnsNames"),
				Message: fmt.Sprintf("the certificate is not for %s, by which the API server calls the webhooks of %s: it refuses what they are to see", host, w.Place().Object),
				Fix:     "add that name to dnsNames",
			})
		}
	},
}

var certificateIssuer = Check{
	ID: "certificate-issuer", Group: Components, Severity: Warning,
	Title:  "Certificates' issuers are in the file",
	Source: sourceCertificates,
	Run: func(s *Subject, report Report) {
		for _, d := range s.Objects("Certificate") {
			reference := manifest.Map(d.Object.Object, "spec", "issuerRef")
			kind, name, group := manifest.Text(reference, "kind"), manifest.Text(reference, "name"), manifest.Text(reference, "group")
			if kind == "" {
				kind = "Issuer"
			}
			if (group != "" && group != "cert-manager.io") || strings.Contains(name, "$") || s.object(kind, name) != nil {
				continue
			}
			report(Finding{
				Place:   d.Place("spec", "issuerRef", "name"),
				Message: fmt.Sprintf("%s %s is not in the file: the certificate is never issued, and the pods that mount its Secret never start", kind, name),
				Fix:     "add the issuer, or name the one that is there",
			})
		}
	},
}
