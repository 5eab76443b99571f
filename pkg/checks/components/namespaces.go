package components

import (
	"context"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
)

const sourceNamespace = "clusterctl provider contract, Components YAML, Target namespace"

var namespaceSingle = checks.Check{
	ID: "namespace-single", Group: checks.Components, Severity: checks.Error,
	Title:  "There is one Namespace at most",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		namespaces := s.Objects("Namespace")
		for i, d := range namespaces {
			if i == 0 {
				continue
			}
			report(checks.Finding{
				Place:   d.Place(),
				Message: fmt.Sprintf("there is a Namespace %s already, and clusterctl refuses a file with more than one", namespaces[0].Object.GetName()),
				Fix:     "take it out, and let whoever needs it make it",
			})
		}
		return nil
	},
}

var namespaceMissing = checks.Check{
	ID: "namespace-missing", Group: checks.Components, Severity: checks.Error,
	Title:  "There is a Namespace",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if len(s.Objects()) == 0 || len(s.Objects("Namespace")) > 0 {
			return nil
		}
		report(checks.Finding{
			Place:   s.At(s.Release.Provider.ComponentsFile()),
			Message: "there is no Namespace: clusterctl installs the provider only for users who give a --target-namespace",
			Fix:     "add a Namespace object with the name of the namespace that the components are in",
		})
		return nil
	},
}

var objectNamespace = checks.Check{
	ID: "object-namespace", Group: checks.Components, Severity: checks.Error,
	Title:  "All namespaced objects are in the target namespace",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		target := installed.TargetNamespace(s)
		for _, d := range s.Objects() {
			if !installed.KindScopes(s).Namespaced(d.Object) {
				continue
			}
			switch namespace := d.Object.GetNamespace(); {
			case target == "" || namespace == target:
			case namespace == "" && !installed.KindScopes(s).Known(d.Object):
				// It may have none, rightly.
			case namespace == "":
				report(checks.Finding{
					Place: d.Place("metadata"), Severity: checks.Warning,
					Message: fmt.Sprintf("it names no namespace: clusterctl puts it into %s, kubectl apply into whatever namespace is current", target),
					Fix:     "set metadata.namespace to " + target,
				})
			default:
				report(checks.Finding{
					Place:   d.Place("metadata", "namespace"),
					Message: fmt.Sprintf("it belongs to namespace %s, and clusterctl puts it into %s: what needs it there does not find it", namespace, target),
					Fix:     fmt.Sprintf("put it into %s, or leave it out and let who needs it elsewhere make it", target),
				})
			}
		}
		return nil
	},
}

var clusterScopedKind = checks.Check{
	ID: "cluster-scoped-kind", Group: checks.Components, Severity: checks.Warning,
	Title:  "clusterctl knows which objects have no namespace",
	Source: sourceNamespace,
	Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		taken := map[string]bool{}
		for _, d := range s.Objects() {
			if installed.KindScopes(s).Namespaced(d.Object) {
				continue
			}
			kind := d.Object.GetAPIVersion() + "/" + d.Object.GetKind()
			if _, known := taken[kind]; !known {
				var err error
				if taken[kind], err = installed.TakenForNamespaced(ctx, s, d); err != nil {
					return err
				}
			}
			if taken[kind] {
				report(checks.Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("%s objects are cluster-scoped, and clusterctl takes them for namespaced: it sets a namespace on this one, and deletes it with any one instance of the provider",
						d.Object.GetKind()),
					Fix: "let the manager make the object, or leave it to users",
				})
			}
		}
		return nil
	},
}
