package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const sourceLabels = "clusterctl provider contract, Components YAML, Labels"

var providerLabel = checks.Check{
	ID: "provider-label", Group: checks.Components, Severity: checks.Warning,
	Title:  "All objects carry the provider's label",
	Source: sourceLabels,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		wanted := s.Release.Provider.Label()
		objects := s.Objects()
		byValue := map[string][]*manifest.Document{}
		var values []string
		for _, d := range objects {
			value := d.Object.GetLabels()[clusterv1.ProviderNameLabel]
			if value == wanted {
				continue
			}
			if byValue[value] == nil {
				values = append(values, value)
			}
			byValue[value] = append(byValue[value], d)
		}
		// One finding for each wrong value: what is wrong with one object is wrong with its likes.
		for _, value := range values {
			first := byValue[value][0]
			place, what := first.Place("metadata", "labels", clusterv1.ProviderNameLabel), fmt.Sprintf("have the label %s=%s", clusterv1.ProviderNameLabel, value)
			if value == "" {
				place, what = first.Place("metadata"), fmt.Sprintf("lack the label %s", clusterv1.ProviderNameLabel)
			}
			report(checks.Finding{
				Place: place,
				Message: fmt.Sprintf("%d of %d objects %s, and clusterctl knows the provider as %s: tools that look for its objects by the label miss them, and those installed without clusterctl can't be taken over",
					len(byValue[value]), len(objects), what, wanted),
				Fix: fmt.Sprintf("label every object %s: %s; `clusterctl release build` does", clusterv1.ProviderNameLabel, wanted),
			})
		}
		return nil
	},
}

// selectorPaths are the places of label selectors by kind.
var selectorPaths = map[string][]any{
	"Service":             {"spec", "selector"},
	"Deployment":          {"spec", "selector", "matchLabels"},
	"StatefulSet":         {"spec", "selector", "matchLabels"},
	"DaemonSet":           {"spec", "selector", "matchLabels"},
	"ReplicaSet":          {"spec", "selector", "matchLabels"},
	"PodDisruptionBudget": {"spec", "selector", "matchLabels"},
}

// changingLabels are labels whose values change from release to release, by the recommendations of
// Kubernetes and Helm.
var changingLabels = []string{"app.kubernetes.io/version", "helm.sh/chart"}

var labelInSelector = checks.Check{
	ID: "label-in-selector", Group: checks.Components, Severity: checks.Warning,
	Title:  "Selectors have no labels that are meant for objects",
	Source: sourceLabels,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		for _, d := range s.Objects() {
			path, ok := selectorPaths[d.Object.GetKind()]
			if !ok {
				continue
			}
			var fields []string
			for _, step := range path {
				fields = append(fields, step.(string)) //nolint:forcetypeassert // the table's own
			}
			selector := manifest.Map(d.Object.Object, fields...)
			var wrong []string
			for label, value := range selector {
				// Cluster API's own releases select by the provider's label with its right value, which stays what it is.
				if isObjectLabel(label) && (label != clusterv1.ProviderNameLabel || value != s.Release.Provider.Label()) {
					wrong = append(wrong, label)
				}
			}
			if len(wrong) == 0 {
				continue
			}
			slices.Sort(wrong)
			consequence := "the selector of a workload can never be changed, so neither can these labels"
			if d.Object.GetKind() == "Service" {
				consequence = "the day the label changes on pods, the Service finds none of them"
			}
			report(checks.Finding{
				Place:   d.Place(manifest.Join(path, wrong[0])...),
				Message: fmt.Sprintf("the selector asks for %s, which is meant for objects: %s", strings.Join(wrong, ", "), consequence),
				Fix:     "put labels on with includeSelectors: false in the kustomization; changing a released selector takes a new name for the Deployment",
			})
		}
		return nil
	},
}

// isObjectLabel says whether a label is one of the contract's for objects, or changes with releases.
func isObjectLabel(label string) bool {
	return strings.HasPrefix(label, clusterv1.GroupVersion.Group+"/") || strings.HasPrefix(label, "clusterctl."+clusterv1.GroupVersion.Group) ||
		slices.Contains(changingLabels, label)
}
