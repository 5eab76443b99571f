package checks

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	capicontract "sigs.k8s.io/cluster-api/util/contract"

	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// mostRefusals is how many reasons to refuse one CRD are shown: a schema that is wrong in one way is
// so in a hundred places.
const mostRefusals = 5

var crdValid = Check{
	ID: "crd-valid", Group: Components, Severity: Error,
	Title:  "An API server takes the CRDs",
	Source: "Kubernetes, CustomResourceDefinition, Specifying a structural schema",
	Run: func(s *Subject, report Report) {
		for _, d := range s.Objects("CustomResourceDefinition") {
			i := slices.IndexFunc(s.CRDs(), func(crd CRD) bool { return crd.Document == d })
			if i < 0 {
				report(Finding{Place: d.Place(), Message: "the CRD has a field of another type than the API has for it: no API server takes it", Fix: "generate the CRD again with controller-gen"})
				continue
			}
			if s.Context().Err() != nil {
				return
			}
			refusals := crdErrors(s.CRDs()[i])
			for n, refusal := range refusals {
				if n == mostRefusals {
					report(Finding{Place: d.Place("spec"), Message: fmt.Sprintf("there are %d more reasons for which the API server refuses the CRD", len(refusals)-n), Fix: "fix the others first"})
					break
				}
				report(Finding{
					Place:   d.Place(schemas.Steps(d.Object.Object, publishedPath(refusal.Field))...),
					Message: "the API server refuses the CRD, and clusterctl init stops there: " + reason(refusal),
					Fix:     "fix the Go type or its markers and generate the CRD again",
				})
			}
		}
	},
}

// crdErrors returns why the API server refuses a definition when it is made; what other checks say of
// it is left out.
func crdErrors(crd CRD) field.ErrorList {
	internal, err := crdupdate.Internal(crdupdate.Installed(&crd.CustomResourceDefinition, false))
	if err != nil {
		return nil
	}
	internal.ResourceVersion = ""
	wanted := capicontract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)
	refusals := slices.DeleteFunc(validation.ValidateCustomResourceDefinition(context.Background(), internal), func(e *field.Error) bool {
		return e.Field == "metadata.name" && crd.Name != wanted || // crd-name
			strings.HasPrefix(e.Field, "status.") || // follows from the rest
			e.Field == "spec.versions" && strings.Contains(e.Detail, "storage version") // crd-storage-version
	})
	if slices.ContainsFunc(refusals, func(e *field.Error) bool { return strings.Contains(e.Detail, "estimated rule cost exceeds") }) {
		refusals = slices.DeleteFunc(refusals, func(e *field.Error) bool { return strings.Contains(e.Detail, "rule cost total") }) // which follows
	}
	// The API server's own code walks maps.
	slices.SortStableFunc(refusals, func(a, b *field.Error) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.ErrorBody(), b.ErrorBody()))
	})
	return refusals
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

// publishedPath returns the path in the published definition of what the API server names: what all
// versions have alike, it has once.
func publishedPath(path string) string {
	for _, p := range publishedPaths {
		if rest, ok := strings.CutPrefix(path, p.internal); ok {
			return p.published + rest
		}
	}
	return path
}

// reason returns what the API server says, without the values that are more than a text or number.
func reason(e *field.Error) string {
	switch e.BadValue.(type) {
	case string, bool, int, int64, float64:
		return e.ErrorBody()
	}
	if e.Detail == "" {
		return e.Type.String()
	}
	return e.Type.String() + ": " + e.Detail
}
