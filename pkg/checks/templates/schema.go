package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

const sourceSchema = "Kubernetes documentation, Extend the Kubernetes API with CustomResourceDefinitions, Validation and Field pruning"

var templateSchema = checks.Check{
	ID: "template-schema", Group: checks.Templates, Severity: checks.Warning,
	Title:  "The objects of templates and ClusterClasses are valid by their kinds' schemas",
	Source: sourceSchema,
	Run: rendered.All.Each(func(ctx context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		var open []string
		for _, o := range t.Objects {
			problems, guesses, err := rendered.SchemaProblems(ctx, s, t, o)
			var notServed *schemas.VersionError
			switch {
			case errors.As(err, &notServed):
				report(checks.Finding{Place: o.Place("apiVersion"),
					Message: fmt.Sprintf("%v: the API server refuses the object", notServed),
					Fix:     "write the object for a version that is served"})
			case err != nil:
				return err
			}
			for _, p := range problems {
				report(schemaFinding(s, o, p))
			}
			open = append(open, guesses...)
		}
		if len(open) > 0 {
			slices.Sort(open)
			report(checks.Finding{Place: s.At(t.Name), Severity: checks.Note,
				Message: fmt.Sprintf("fields that need values of %s could not be checked: no value was found that their schemas allow", checks.Few(slices.Compact(open))),
				Fix:     "give sampleValues in " + release.ConfigFile})
		}
		return nil
	}),
}

// schemaFinding says what an API server does with a field.
func schemaFinding(s *checks.Subject, o rendered.Object, p schemas.Problem) checks.Finding {
	gvk := o.GroupVersionKind()
	if p.Missing {
		finding := checks.Finding{Place: o.Place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: the field is required", gvk.Kind),
			Fix:     "give the field a value",
		}
		if rendered.MayBeFilledIn(s, o, p) {
			finding.Severity = checks.Note
			finding.Message += ", unless a webhook fills it in"
		}
		return finding
	}
	if !p.Unknown {
		finding := checks.Finding{Place: o.Place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: %s", gvk.Kind, p.Message),
			Fix:     "give the field a value that the schema of " + gvk.Kind + " " + gvk.Version + " allows"}
		if others := versionsWith(s, gvk.GroupKind(), p.Below); others != "" {
			finding.Message += fmt.Sprintf("; the value is written as %s has it", others)
			finding.Fix = fixVersion(gvk.Version)
		}
		return finding
	}
	finding := checks.Finding{Place: o.Place(p.Path...),
		Message: fmt.Sprintf("%s %s has no such field: the API server drops it without a word", gvk.Kind, gvk.Version),
		Fix:     "take the field out, or put it where the schema has it",
	}
	if others := versionsWith(s, gvk.GroupKind(), p.Path); others != "" {
		finding.Message = fmt.Sprintf("%s %s has no such field, but %s has it: the API server drops it without a word", gvk.Kind, gvk.Version, others)
		finding.Cause = gvk.String() + " written for " + others
		finding.Fix = fixVersion(gvk.Version)
	}
	return finding
}

// fixVersion says what to do about an object that is written for another version than its own.
func fixVersion(version string) string {
	return "write the object as " + version + " has it, or give it the apiVersion that it is written for"
}

// versionsWith lists the served versions of a kind that have a field, or returns "".
func versionsWith(s *checks.Subject, gk schema.GroupKind, path []any) string {
	kind, ok := s.KnownKinds().Kind(gk)
	if !ok || path == nil {
		return ""
	}
	return strings.Join(kind.VersionsWith(path), ", ")
}
