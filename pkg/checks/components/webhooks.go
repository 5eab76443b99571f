package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// webhook is a place with an address that the API server calls.
type webhook struct {
	*manifest.Document
	// path leads to clientConfig in the document.
	path   []any
	client map[string]any
	// called is false if the API server never calls it.
	called bool
}

// webhooks returns the admission and conversion webhooks of the components.
func webhooks(s *checks.Subject) []webhook {
	var all []webhook
	for _, d := range s.Objects("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration") {
		for i, fields := range manifest.Maps(d.Object.Object, "webhooks") {
			all = append(all, webhook{d, []any{"webhooks", i, "clientConfig"}, manifest.Map(fields, "clientConfig"), true})
		}
	}
	for _, d := range s.Objects("CustomResourceDefinition") {
		conversion := manifest.Map(d.Object.Object, "spec", "conversion")
		if manifest.Text(conversion, "strategy") == "Webhook" {
			versions := len(manifest.List(d.Object.Object, "spec", "versions"))
			all = append(all, webhook{d, []any{"spec", "conversion", "webhook", "clientConfig"}, manifest.Map(conversion, "webhook", "clientConfig"), versions > 1})
		}
	}
	return all
}

// service returns the name of the Service that a webhook is behind, or "".
func (w webhook) service() string { return manifest.Text(w.client, "service", "name") }

var webhookService = checks.Check{
	ID: "webhook-service", Group: checks.Components, Severity: checks.Error,
	Title:  "Webhooks use a Service of the file",
	Source: "clusterctl provider contract, Additional notes, Links to external objects",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		reported := map[string]bool{}
		for _, w := range webhooks(s) {
			if w.service() == "" || strings.Contains(w.service(), "$") {
				continue // a URL is outside of the file
			}
			path, f := serviceProblem(s, w)
			f.Place = w.Place(manifest.Join(w.path, path...)...)
			if key := f.Object.String() + f.Message; f.Message != "" && !reported[key] {
				reported[key] = true
				if !w.called {
					f.Severity = checks.Warning
					f.Message += "; nothing is converted while the CRD has one version"
				}
				report(f)
			}
		}
		return nil
	},
}

// serviceProblem returns the defect of the Service that a webhook names, and the path of the field; the finding has no
// message if the Service is right.
func serviceProblem(s *checks.Subject, w webhook) (path []any, f checks.Finding) {
	service := s.Object("Service", w.service())
	if service == nil {
		return []any{"service", "name"}, checks.Finding{
			Message: fmt.Sprintf("the webhook uses Service %s, which is not in the file: the API server refuses every request for it", w.service()),
			Fix:     "add the Service, or name the one in the file: kustomize renames it only if its configuration lists this field",
		}
	}
	reference := manifest.Map(w.client, "service")
	port := int64(443)
	if number, ok := reference["port"].(int64); ok {
		port = number
	}
	hasPort := slices.ContainsFunc(manifest.List(service.Object.Object, "spec", "ports"), func(item any) bool {
		fields, _ := item.(map[string]any)
		return fields["port"] == port
	})
	namespace, actual := manifest.Text(reference, "namespace"), targetNamespaceOf(s, service)
	switch {
	case !hasPort:
		return []any{"service", "port"}, checks.Finding{
			Message: fmt.Sprintf("the webhook uses port %d, which Service %s does not have: the API server refuses every request for it", port, w.service()),
			Fix:     "add the port to the Service, or use a port that it has",
		}
	case namespace != "" && actual != "" && namespace != actual:
		return []any{"service", "namespace"}, checks.Finding{
			Severity: checks.Warning,
			Message:  fmt.Sprintf("the webhook expects Service %s in namespace %s, but it is in %s: clusterctl corrects that, kubectl apply does not", w.service(), namespace, actual),
			Fix:      "set the namespace of the Service",
		}
	case manifest.Text(reference, "path") == "":
		return []any{"service", "path"}, checks.Finding{
			Severity: checks.Warning,
			Message:  "the webhook has no path, and controller-runtime serves no webhook at /: the API server refuses every request for it",
			Fix:      "set the path, such as /convert for conversion",
		}
	}
	return nil, checks.Finding{}
}

// targetNamespaceOf returns the namespace that an object of the file is in.
func targetNamespaceOf(s *checks.Subject, d *manifest.Document) string {
	if namespace := d.Object.GetNamespace(); namespace != "" {
		return namespace
	}
	return installed.TargetNamespace(s)
}
