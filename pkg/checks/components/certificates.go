package components

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiwebhook "k8s.io/apiserver/pkg/util/webhook"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const (
	sourceInjection    = "cert-manager, CA Injector"
	sourceCertificates = "cert-manager, Certificate resource"
)

var caInjection = checks.Check{
	ID: "ca-injection", Group: checks.Components, Severity: checks.Warning,
	Title:  "The API server can trust the webhooks",
	Source: sourceInjection,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		reportInjectionAnnotations(s, report)
		reported := map[*manifest.Document]bool{}
		for _, w := range webhooks(s) {
			if installed.InjectsCA(s, w.Document) || w.hasCA() || reported[w.Document] || w.service() == "" {
				continue
			}
			reported[w.Document] = true
			severity, consequence := checks.Warning, "refuses every request for it"
			if !w.called {
				severity, consequence = checks.Note, "refuses all objects once the CRD has a second version"
			}
			report(checks.Finding{
				Place: w.Place(w.path...), Severity: severity,
				Message: "caBundle is missing, and so is an annotation for cert-manager to inject it: the API server does not trust the webhook, and " + consequence,
				Fix:     fmt.Sprintf("annotate the object with %s: NAMESPACE/CERTIFICATE", installed.InjectCAFrom),
			})
		}
		return nil
	},
}

// reportInjectionAnnotations reports annotations that clusterctl refuses, or that name a missing Certificate.
func reportInjectionAnnotations(s *checks.Subject, report checks.Report) {
	for _, d := range s.Objects("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition") {
		value, there := d.Object.GetAnnotations()[installed.InjectCAFrom]
		if !there {
			continue
		}
		place := d.Place("metadata", "annotations", installed.InjectCAFrom)
		parts := strings.Split(value, "/")
		switch {
		case len(parts) != 2:
			report(checks.Finding{
				Place: place, Severity: checks.Error,
				Message: fmt.Sprintf("the annotation is %q, and clusterctl refuses a file in which it is not NAMESPACE/CERTIFICATE", value),
				Fix:     "write the namespace and the name of the Certificate, separated by one slash",
			})
		case s.Object("Certificate", parts[1]) == nil && !strings.Contains(parts[1], "$"):
			report(checks.Finding{
				Place:   place,
				Message: fmt.Sprintf("Certificate %s is not in the file: no CA is injected, and the API server does not trust the webhook", parts[1]),
				Fix:     "add the Certificate, or name the one in the file",
			})
		}
	}
}

// hasCA reports whether a webhook has a caBundle that the API server may be able to use. An invalid caBundle of a CRD
// is reported by crd-ca-bundle.
func (w webhook) hasCA() bool {
	bundle := manifest.Text(w.client, "caBundle")
	if bundle == "" || w.Object.GetKind() == "CustomResourceDefinition" {
		return bundle != ""
	}
	certificates, err := base64.StdEncoding.DecodeString(bundle)
	return err != nil || len(apiwebhook.ValidateCABundle(field.NewPath("caBundle"), certificates)) == 0
}

var certificateDNS = checks.Check{
	ID: "certificate-dns", Group: checks.Components, Severity: checks.Warning,
	Title:  "Certificates have the names of the webhooks' Services",
	Source: sourceCertificates,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		reported := map[string]bool{}
		for _, w := range webhooks(s) {
			_, name, _ := strings.Cut(w.Object.GetAnnotations()[installed.InjectCAFrom], "/")
			certificate, service := s.Object("Certificate", name), s.Object("Service", w.service())
			if certificate == nil || service == nil {
				continue // ca-injection and webhook-service report it
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
			report(checks.Finding{
				Place:   certificate.Place("spec", "dnsNames"),
				Message: fmt.Sprintf("the certificate lacks the name %s, which the API server uses to call the webhooks of %s: it refuses every request for them", host, w.Place().Object),
				Fix:     "add the name to dnsNames",
			})
		}
		return nil
	},
}

var certificateIssuer = checks.Check{
	ID: "certificate-issuer", Group: checks.Components, Severity: checks.Warning,
	Title:  "Certificates' issuers are in the file",
	Source: sourceCertificates,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		for _, d := range s.Objects("Certificate") {
			reference := manifest.Map(d.Object.Object, "spec", "issuerRef")
			kind, name, group := manifest.Text(reference, "kind"), manifest.Text(reference, "name"), manifest.Text(reference, "group")
			if kind == "" {
				kind = "Issuer"
			}
			if (group != "" && group != "cert-manager.io") || strings.Contains(name, "$") || s.Object(kind, name) != nil {
				continue
			}
			report(checks.Finding{
				Place:   d.Place("spec", "issuerRef", "name"),
				Message: fmt.Sprintf("%s %s is not in the file: the certificate is never issued, and the pods that mount its Secret never start", kind, name),
				Fix:     "add the issuer, or name the one in the file",
			})
		}
		return nil
	},
}
