package components

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
)

var crdConversion = checks.Check{
	ID: "crd-conversion", Group: checks.Components, Severity: checks.Warning,
	Title:  "Versions with different schemas are converted",
	Source: sourceCRDs,
	Run: checks.Each((*checks.Subject).CRDs, func(_ *checks.Subject, crd checks.CRD, report checks.Report) {
		if installed.ConvertedByWebhook(crd) {
			return
		}
		served := installed.ServedVersions(crd)
		for i := 1; i < len(served); i++ {
			lost := lostFields(served[0], served[i])
			if len(lost) == 0 {
				continue
			}
			const shown = 4
			more := ""
			if len(lost) > shown {
				more = fmt.Sprintf(" and %d more", len(lost)-shown)
			}
			report(checks.Finding{
				Place: crd.Place("spec", "versions", diff.VersionIndex(&crd, served[i].Name)),
				Message: fmt.Sprintf("%s and %s are both served, differ, and are not converted: an object that is written in one version and read in the other silently loses fields: %s%s",
					served[0].Name, served[i].Name, strings.Join(lost[:min(shown, len(lost))], ", "), more),
				Fix: "convert the versions with a webhook, or serve one of them only",
			})
		}
	}),
}

// lostFields returns the paths of fields that only one of two versions has, or whose types differ. Descriptions and
// validations may differ, because they lose no data.
func lostFields(a, b apiextensionsv1.CustomResourceDefinitionVersion) []string {
	if a.Schema == nil || b.Schema == nil {
		return nil
	}
	var lost []string
	compareFields(a.Schema.OpenAPIV3Schema, b.Schema.OpenAPIV3Schema, "", &lost)
	slices.Sort(lost)
	return lost
}

// compareFields adds the fields in which two schemas differ.
func compareFields(a, b *apiextensionsv1.JSONSchemaProps, path string, lost *[]string) {
	switch {
	case a == nil && b == nil:
		return
	case a == nil || b == nil || a.Type != b.Type || a.XIntOrString != b.XIntOrString:
		*lost = append(*lost, path)
		return
	case ptr.Deref(a.XPreserveUnknownFields, false) || ptr.Deref(b.XPreserveUnknownFields, false):
		return
	}
	for _, name := range sets.List(sets.KeySet(a.Properties).Union(sets.KeySet(b.Properties))) {
		field, inA := a.Properties[name]
		other, inB := b.Properties[name]
		below := strings.TrimPrefix(path+"."+name, ".")
		if inA != inB {
			*lost = append(*lost, below)
			continue
		}
		compareFields(&field, &other, below, lost)
	}
	if a.Items != nil && b.Items != nil {
		compareFields(a.Items.Schema, b.Items.Schema, path+"[]", lost)
	}
	if a.AdditionalProperties != nil && b.AdditionalProperties != nil {
		compareFields(a.AdditionalProperties.Schema, b.AdditionalProperties.Schema, path+"[*]", lost)
	}
}
