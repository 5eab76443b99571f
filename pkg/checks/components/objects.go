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
	Title:  "The components YAML is readable",
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
				who = "the file exceeds the limits of this tool"
			case refusal == nil:
				severity, who = checks.Warning, "clusterctl can read the file, other tools can't; its content was not checked"
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
				report(checks.Finding{Place: d.Place(), Message: "the document has no apiVersion or no kind: every API server refuses it", Fix: "complete it, or remove it"})
			}
		}
		return nil
	},
}

// objectKey identifies an object after clusterctl has put all objects into one namespace.
type objectKey struct{ group, kind, name string }

var duplicateObject = checks.Check{
	ID: "duplicate-object", Group: checks.Components, Severity: checks.Error,
	Title:  "No object is duplicated",
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
				// namespace-single reports these.
			case equality.Semantic.DeepEqual(before.Object.Object, d.Object.Object):
				report(checks.Finding{
					Place: d.Place(), Severity: checks.Warning,
					Message: fmt.Sprintf("the same object is in line %d already", before.Place().Line),
					Fix:     "remove one of the two",
				})
			default:
				report(checks.Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("an object of this kind and name is in line %d already: clusterctl installs both in one namespace, so this one overwrites the other",
						before.Place().Line),
					Fix: "rename one of the two",
				})
			}
		}
		return nil
	},
}

// configMapLimit is the number of bytes that the API server accepts in one ConfigMap.
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
			Message: fmt.Sprintf("the file has %d bytes, more than a ConfigMap holds: users of the operator without internet access must compress it", len(file.Data)),
			Fix:     "omit descriptions from the CRDs with controller-gen's maxDescLen, or document the compression for these users",
		})
		return nil
	},
}
