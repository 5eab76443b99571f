package crdupdate_test

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: demohosts.infrastructure.cluster.x-k8s.io
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: DemoHost, plural: demohosts}
  scope: Namespaced
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {name: demo, namespace: demo-system, path: /convert}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

// crd returns the definition with some changes.
func crd(t *testing.T, changes ...func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(definition), crd); err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(crd)
	}
	return crd
}

func placeholder(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion.Webhook.ClientConfig.CABundle = []byte("\n")
}

func withoutConversion(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Conversion = nil }

func withStrategyNone(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
}

func byURL(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://demo.example.com/convert")}
}

func withOtherVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Versions[0].Name = "v2"
}

func clusterScoped(crd *apiextensionsv1.CustomResourceDefinition) {
	crd.Spec.Scope = apiextensionsv1.ClusterScoped
}

func TestRefusals(t *testing.T) {
	type change = func(*apiextensionsv1.CustomResourceDefinition)
	const bundle = "spec.conversion.webhookClientConfig.caBundle"
	for name, tc := range map[string]struct {
		before, after []change
		injected      bool
		want          []string
	}{
		"the same":                                   {injected: true},
		"a placeholder for an injected CA":           {after: []change{placeholder}, injected: true, want: []string{bundle}},
		"the same placeholder for an injected CA":    {before: []change{placeholder}, after: []change{placeholder}, injected: true, want: []string{bundle}},
		"the same placeholder that nothing replaces": {before: []change{placeholder}, after: []change{placeholder}},
		"a placeholder for no CA":                    {after: []change{placeholder}, want: []string{bundle}},
		"a placeholder with a new webhook":           {before: []change{withoutConversion}, after: []change{placeholder}, want: []string{bundle}},
		"no CA for an injected one":                  {before: []change{placeholder}, injected: true},
		"strategy None":                              {after: []change{withStrategyNone}, want: []string{"spec.conversion.webhookClientConfig", "spec.conversion.conversionReviewVersions"}},
		"no conversion":                              {after: []change{withoutConversion}},
		"a URL in place of a Service":                {after: []change{byURL}, want: []string{"spec.conversion.webhookClientConfig"}},
		"the stored version is removed":              {after: []change{withOtherVersion}, want: []string{"status.storedVersions[0]"}},
		"another scope":                              {after: []change{clusterScoped}, want: []string{"spec.scope"}},
		"another scope before it is established":     {before: []change{placeholder}, after: []change{clusterScoped}},
	} {
		t.Run(name, func(t *testing.T) {
			refusals, err := crdupdate.Refusals(crdupdate.Installed(crd(t, tc.before...), tc.injected), crd(t, tc.after...))
			if err != nil {
				t.Fatal(err)
			}
			var fields []string
			for _, refusal := range refusals {
				fields = append(fields, refusal.Field)
			}
			if !slices.Equal(fields, tc.want) {
				t.Errorf("refused fields %v, want %v: %v", fields, tc.want, refusals)
			}
		})
	}
}

// TestInstalledCopies checks that Installed does not change the definition of the release.
func TestInstalledCopies(t *testing.T) {
	released := crd(t)
	crdupdate.Installed(released, true)
	if port := released.Spec.Conversion.Webhook.ClientConfig.Service.Port; port != nil {
		t.Errorf("the release's definition has the port %d", *port)
	}
	if bundle := released.Spec.Conversion.Webhook.ClientConfig.CABundle; bundle != nil {
		t.Errorf("the release's definition has the caBundle %q", bundle)
	}
}

// TestPatchedKeepsMissingFields checks that Patched keeps labels and fields that the new definition doesn't have.
func TestPatchedKeepsMissingFields(t *testing.T) {
	labelled := func(name string) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Labels = map[string]string{name: ""} }
	}
	patched, err := crdupdate.Patched(crdupdate.Installed(crd(t, labelled("old")), true), crd(t, labelled("new"), withoutConversion))
	if err != nil {
		t.Fatal(err)
	}
	if _, old := patched.Labels["old"]; !old || len(patched.Labels) != 2 {
		t.Errorf("the labels are %v", patched.Labels)
	}
	if crdupdate.InvalidCABundle(patched) != nil || len(patched.Spec.Conversion.Webhook.ClientConfig.CABundle) == 0 {
		t.Errorf("the conversion is %v", patched.Spec.Conversion)
	}
}
