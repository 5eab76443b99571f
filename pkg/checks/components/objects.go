package components

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceComponents = "clusterctl provider contract, Components YAML"

var componentsParse = checks.Check{
	ID: "components-parse", Group: checks.Components, Severity: checks.Error,
	Title:  "The components YAML can be read",
	Source: sourceComponents,
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		documents, syntax := s.Components()
		if syntax != nil {
			place := s.AtLine(s.Release.Provider.ComponentsFile(), syntax.Line)
			place.Document = syntax.Document
			severity, who := checks.Error, "clusterctl can't read the file"
			refusal, err := refusalOf(ctx, s)
			switch {
			case err != nil:
				return err
			case syntax.Beyond:
				who = "the file is beyond the limits of what is checked"
			case refusal == nil:
				severity, who = checks.Warning, "clusterctl reads the file, and others can't; nothing in it was checked"
			}
			report(checks.Finding{
				Place: place, Severity: severity,
				Message: who + ": " + syntax.Message,
				Fix:     "fix the YAML; `clusterctl release build` writes the file from a kustomization",
			})
			return nil
		}
		for _, d := range documents {
			if d.Object.GetKind() == "" || d.Object.GetAPIVersion() == "" {
				report(checks.Finding{Place: d.Place(), Message: "the document has no apiVersion or no kind: no API server takes it", Fix: "complete it, or take it out"})
			}
		}
		return nil
	},
}

// objectKey is what tells objects from each other once clusterctl has put them into one namespace.
type objectKey struct{ group, kind, name string }

var duplicateObject = checks.Check{
	ID: "duplicate-object", Group: checks.Components, Severity: checks.Error,
	Title:  "No object is there twice",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		first := map[objectKey]*manifest.Document{}
		for _, d := range s.Objects() {
			gvk := d.Object.GroupVersionKind()
			key := objectKey{gvk.Group, gvk.Kind, d.Object.GetName()}
			before, seen := first[key]
			switch {
			case !seen:
				first[key] = d
			case d.Object.GetKind() == "Namespace":
				// namespace-single has its own words for these.
			case equality.Semantic.DeepEqual(before.Object.Object, d.Object.Object):
				report(checks.Finding{
					Place: d.Place(), Severity: checks.Warning,
					Message: fmt.Sprintf("the same object is in line %d already", before.Place().Line),
					Fix:     "take one of the two out",
				})
			default:
				report(checks.Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("an object of this kind and name is in line %d already: clusterctl installs both in one namespace, so this one overwrites that one",
						before.Place().Line),
					Fix: "rename one of the two",
				})
			}
		}
		return nil
	},
}

// configMapLimit is how many bytes the API server takes in one ConfigMap.
const configMapLimit = 1 << 20

var componentsSize = checks.Check{
	ID: "size", Group: checks.Components, Severity: checks.Note,
	Title:  "The components YAML fits into a ConfigMap",
	Source: "Cluster API Operator, Air-gapped environment",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		file, ok := s.Release.Components()
		if !ok || len(file.Data) <= configMapLimit {
			return nil
		}
		report(checks.Finding{
			Place:   s.At(file.Name),
			Message: fmt.Sprintf("the file has %d bytes, more than a ConfigMap holds: users of the operator without access to the internet must store it compressed", len(file.Data)),
			Fix:     "leave descriptions out of the CRDs with controller-gen's maxDescLen, or tell these users to compress it",
		})
		return nil
	},
}
