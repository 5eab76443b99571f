package components

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	capicontract "sigs.k8s.io/cluster-api/util/contract"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/crdupdate"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// mostRefusals is the number of reasons that are shown for one CRD: one mistake in a schema often causes a hundred.
const mostRefusals = 5

var crdValid = checks.Check{
	ID: "crd-valid", Group: checks.Components, Severity: checks.Error,
	Title:  "An API server accepts the CRDs",
	Source: "Kubernetes, CustomResourceDefinition, Specifying a structural schema",
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		for _, d := range s.Objects("CustomResourceDefinition") {
			i := slices.IndexFunc(s.CRDs(), func(crd checks.CRD) bool { return crd.Document == d })
			if i < 0 {
				report(checks.Finding{Place: d.Place(), Message: "a field of the CRD has a type that the API does not allow: every API server refuses the CRD", Fix: "generate the CRD again with controller-gen"})
				continue
			}
			refusals, err := crdErrors(ctx, s.CRDs()[i])
			if err != nil {
				return err
			}
			for n, refusal := range refusals {
				if n == mostRefusals {
					report(checks.Finding{Place: d.Place("spec"), Message: fmt.Sprintf("the API server refuses the CRD for %d more reasons", len(refusals)-n), Fix: "fix the others first"})
					break
				}
				report(checks.Finding{
					Place:   d.Place(schemas.Steps(d.Object.Object, installed.PublishedPath(refusal.Field))...),
					Message: "the API server refuses the CRD, and clusterctl init stops there: " + installed.Reason(refusal),
					Fix:     "fix the Go type or its markers and generate the CRD again",
				})
			}
		}
		return nil
	},
}

// crdErrors returns why the API server refuses to create a CRD, without the reasons that other checks report.
func crdErrors(ctx context.Context, crd checks.CRD) (field.ErrorList, error) {
	internal, err := crdupdate.Internal(crdupdate.Installed(&crd.CustomResourceDefinition, false))
	if err != nil {
		return nil, err
	}
	internal.ResourceVersion = ""
	wanted := capicontract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)
	refusals := slices.DeleteFunc(validation.ValidateCustomResourceDefinition(ctx, internal), func(e *field.Error) bool {
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
	return refusals, ctx.Err()
}
