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
	Title:  "The file has at most one Namespace",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		namespaces := s.Objects("Namespace")
		for i, d := range namespaces {
			if i == 0 {
				continue
			}
			report(checks.Finding{
				Place:   d.Place(),
				Message: fmt.Sprintf("the file already has the Namespace %s, and clusterctl refuses a file with more than one", namespaces[0].Object.GetName()),
				Fix:     "remove it, and let its users create it",
			})
		}
		return nil
	},
}

var namespaceMissing = checks.Check{
	ID: "namespace-missing", Group: checks.Components, Severity: checks.Error,
	Title:  "The file has a Namespace",
	Source: sourceNamespace,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if len(s.Objects()) == 0 || len(s.Objects("Namespace")) > 0 {
			return nil
		}
		report(checks.Finding{
			Place:   s.At(s.Release.Provider.ComponentsFile()),
			Message: "the file has no Namespace: clusterctl installs the provider only for users who set --target-namespace",
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
				// These kinds may lack a namespace.
			case namespace == "":
				report(checks.Finding{
					Place: d.Place("metadata"), Severity: checks.Warning,
					Message: fmt.Sprintf("the object has no namespace: clusterctl puts it into %s, kubectl apply into the current namespace", target),
					Fix:     "set metadata.namespace to " + target,
				})
			default:
				report(checks.Finding{
					Place:   d.Place("metadata", "namespace"),
					Message: fmt.Sprintf("the object has namespace %s, but clusterctl puts it into %s: components that need it in the first do not find it", namespace, target),
					Fix:     fmt.Sprintf("move it to %s, or remove it and let its users create it elsewhere", target),
				})
			}
		}
		return nil
	},
}

var clusterScopedKind = checks.Check{
	ID: "cluster-scoped-kind", Group: checks.Components, Severity: checks.Warning,
	Title:  "clusterctl knows which objects are cluster-scoped",
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
				if taken[kind], err = installed.TreatedAsNamespaced(ctx, s, d); err != nil {
					return err
				}
			}
			if taken[kind] {
				report(checks.Finding{
					Place: d.Place(),
					Message: fmt.Sprintf("%s objects are cluster-scoped, but clusterctl treats them as namespaced: it sets a namespace on this one, and deletes it with any instance of the provider",
						d.Object.GetKind()),
					Fix: "let the manager create the object, or leave it to users",
				})
			}
		}
		return nil
	},
}
