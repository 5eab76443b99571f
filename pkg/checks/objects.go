package checks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceComponents = "clusterctl provider contract, Components YAML"

var componentsParse = Check{
	ID: "components-parse", Group: Components, Severity: Error,
	Title:  "The components YAML can be read",
	Source: sourceComponents,
	Run: func(s *Subject, report Report) {
		documents, err := s.Components()
		if err != nil {
			place := s.placeOfLine(err.Line)
			place.Document = err.Document
			severity, who := Error, "clusterctl can't read the file"
			switch {
			case err.Beyond:
				who = "the file is beyond the limits of what is checked"
			case s.refusal() == nil:
				severity, who = Warning, "clusterctl reads the file, and others can't; nothing in it was checked"
			}
			report(Finding{
				Place: place, Severity: severity,
				Message: who + ": " + err.Message,
				Fix:     "fix the YAML; `clusterctl release build` writes the file from a kustomization",
			})
			return
		}
		for _, d := range documents {
			if d.Object.GetKind() == "" || d.Object.GetAPIVersion() == "" {
				report(Finding{Place: d.Place(), Message: "the document has no apiVersion or no kind: no API server takes it", Fix: "complete it, or take it out"})
			}
		}
	},
}

// objectKey is what tells objects from each other once clusterctl has put them into one namespace.
type objectKey struct{ group, kind, name string }

var duplicateObject = Check{
	ID: "duplicate-object", Group: Components, Severity: Error,
	Title:  "No object is there twice",
	Source: sourceNamespace,
	Run: func(s *Subject, report Report) {
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
				report(Finding{
					Place: d.Place(), Severity: Warning,
					Message: fmt.Sprintf("the same object is in line %d already", before.Place().Line),
					Fix:     "take one of the two out",
				})
			default:
				report(Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("an object of this kind and name is in line %d already: clusterctl installs both in one namespace, so this one overwrites that one",
						before.Place().Line),
					Fix: "rename one of the two",
				})
			}
		}
	},
}

// configMapLimit is how many bytes the API server takes in one ConfigMap.
const configMapLimit = 1 << 20

var componentsSize = Check{
	ID: "size", Group: Components, Severity: Note,
	Title:  "The components YAML fits into a ConfigMap",
	Source: "Cluster API Operator, Air-gapped environment",
	Run: func(s *Subject, report Report) {
		file, ok := s.Release.Components()
		if !ok || len(file.Data) <= configMapLimit {
			return
		}
		report(Finding{
			Place:   s.At(file.Name),
			Message: fmt.Sprintf("the file has %d bytes, more than a ConfigMap holds: users of the operator without access to the internet must store it compressed", len(file.Data)),
			Fix:     "leave descriptions out of the CRDs with controller-gen's maxDescLen, or tell these users to compress it",
		})
	},
}
