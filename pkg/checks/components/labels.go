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
		// One finding covers all objects with the same wrong value.
		for _, value := range values {
			first := byValue[value][0]
			place, what := first.Place("metadata", "labels", clusterv1.ProviderNameLabel), fmt.Sprintf("have the label %s=%s", clusterv1.ProviderNameLabel, value)
			if value == "" {
				place, what = first.Place("metadata"), fmt.Sprintf("lack the label %s", clusterv1.ProviderNameLabel)
			}
			report(checks.Finding{
				Place: place,
				Message: fmt.Sprintf("%d of %d objects %s, but clusterctl knows the provider as %s: tools that find objects by the label miss these, and clusterctl can't adopt objects that were installed without it",
					len(byValue[value]), len(objects), what, wanted),
				Fix: fmt.Sprintf("label every object %s: %s; `clusterctl release build` does so", clusterv1.ProviderNameLabel, wanted),
			})
		}
		return nil
	},
}

// selectorPaths are the paths of label selectors by kind.
var selectorPaths = map[string][]any{
	"Service":             {"spec", "selector"},
	"Deployment":          {"spec", "selector", "matchLabels"},
	"StatefulSet":         {"spec", "selector", "matchLabels"},
	"DaemonSet":           {"spec", "selector", "matchLabels"},
	"ReplicaSet":          {"spec", "selector", "matchLabels"},
	"PodDisruptionBudget": {"spec", "selector", "matchLabels"},
}

// changingLabels are labels whose values change with each release, as Kubernetes and Helm recommend.
var changingLabels = []string{"app.kubernetes.io/version", "helm.sh/chart"}

var labelInSelector = checks.Check{
	ID: "label-in-selector", Group: checks.Components, Severity: checks.Warning,
	Title:  "Selectors have no labels that are intended for objects",
	Source: sourceLabels,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		for _, d := range s.Objects() {
			path, ok := selectorPaths[d.Object.GetKind()]
			if !ok {
				continue
			}
			selector, _ := manifest.At(d.Object.Object, path...).(map[string]any)
			var wrong []string
			for label, value := range selector {
				// Cluster API's own releases select by the provider's label with its right value, which does not
				// change.
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
				consequence = "when the label of the pods changes, the Service selects no pods"
			}
			report(checks.Finding{
				Place:   d.Place(manifest.Join(path, wrong[0])...),
				Message: fmt.Sprintf("the selector requires %s, which is intended for objects: %s", strings.Join(wrong, ", "), consequence),
				Fix:     "set labels with includeSelectors: false in the kustomization; a changed selector needs a new name for a released Deployment",
			})
		}
		return nil
	},
}

// isObjectLabel reports whether a label is for objects only, by the contract, or changes with releases.
func isObjectLabel(label string) bool {
	return strings.HasPrefix(label, clusterv1.GroupVersion.Group+"/") || strings.HasPrefix(label, "clusterctl."+clusterv1.GroupVersion.Group) ||
		slices.Contains(changingLabels, label)
}
