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
	Title:  "The objects of templates and ClusterClasses are valid against the schemas of their kinds",
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
					Fix:     "write the object for a served version"})
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
				Message: fmt.Sprintf("fields with values of %s could not be checked: no generated value fits their schemas", checks.Few(slices.Compact(open))),
				Fix:     "add sampleValues in " + release.ConfigFile})
		}
		return nil
	}),
}

// schemaFinding returns the finding for a problem that an API server reports.
func schemaFinding(s *checks.Subject, o rendered.Object, p schemas.Problem) checks.Finding {
	gvk := o.GroupVersionKind()
	if p.Missing {
		finding := checks.Finding{Place: o.Place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: the field is required", gvk.Kind),
			Fix:     "set the field",
		}
		if rendered.MayBeFilledIn(s, o, p) {
			finding.Severity = checks.Note
			finding.Message += ", unless a webhook sets it"
		}
		return finding
	}
	if !p.Unknown {
		finding := checks.Finding{Place: o.Place(p.Path...),
			Message: fmt.Sprintf("the API server refuses the %s: %s", gvk.Kind, p.Message),
			Fix:     "set the field to a value that the schema of " + gvk.Kind + " " + gvk.Version + " allows"}
		if others := versionsWith(s, gvk.GroupKind(), p.Below); others != "" {
			finding.Message += fmt.Sprintf("; the value has the form of %s", others)
			finding.Fix = fixVersion(gvk.Version)
		}
		return finding
	}
	finding := checks.Finding{Place: o.Place(p.Path...),
		Message: fmt.Sprintf("%s %s has no such field: the API server silently drops it", gvk.Kind, gvk.Version),
		Fix:     "remove the field, or move it to its place in the schema",
	}
	if others := versionsWith(s, gvk.GroupKind(), p.Path); others != "" {
		finding.Message = fmt.Sprintf("%s %s has no such field, but %s has it: the API server silently drops it", gvk.Kind, gvk.Version, others)
		finding.Cause = gvk.String() + " written for " + others
		finding.Fix = fixVersion(gvk.Version)
	}
	return finding
}

// fixVersion returns the fix for an object that is written for another version than its own.
func fixVersion(version string) string {
	return "use the fields of " + version + ", or set the apiVersion that the object is written for"
}

// versionsWith lists the served versions of a kind that have a field, or returns "".
func versionsWith(s *checks.Subject, gk schema.GroupKind, path []any) string {
	kind, ok := s.KnownKinds().Kind(gk)
	if !ok || path == nil {
		return ""
	}
	return strings.Join(kind.VersionsWith(path), ", ")
}
