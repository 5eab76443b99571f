package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
)

// aggregateLabel adds the rules of a ClusterRole to the role of the core controllers.
var aggregateLabel = clusterv1.GroupVersion.Group + "/aggregate-to-manager"

// coreVerbs are the verbs that the contract requires: full read and write access.
var coreVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}

var aggregatedRole = checks.Check{
	ID: "aggregated-role", Group: checks.Components, Severity: checks.Error,
	Title:  "Core Cluster API has access to the resources of the provider's own groups",
	Source: "InfraMachine contract, All resources: API group",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		var aggregated []installed.Rule
		for _, r := range installed.Rules(s, "ClusterRole") {
			if r.Role.Object.GetLabels()[aggregateLabel] == "true" {
				aggregated = append(aggregated, r)
			}
		}
		for _, crd := range s.CRDs() {
			if _, _, ok := installed.ContractKindOf(s, crd); !ok || slices.Contains(installed.WellKnownGroups, crd.Spec.Group) {
				continue
			}
			var missing []string
			for _, verb := range coreVerbs {
				granted := func(r installed.Rule) bool { return r.Grants(crd.Spec.Group, crd.Spec.Names.Plural, verb) }
				if !slices.ContainsFunc(aggregated, granted) {
					missing = append(missing, verb)
				}
			}
			if len(missing) > 0 {
				report(checks.Finding{
					Place: crd.Place("spec", "group"),
					Message: fmt.Sprintf("core Cluster API has no permission to %s %s in group %s, which its own role does not contain: it never reconciles objects that refer to them",
						strings.Join(missing, ", "), crd.Spec.Names.Plural, crd.Spec.Group),
					Fix: fmt.Sprintf("add a ClusterRole labelled %s: \"true\" that grants %s on it", aggregateLabel, strings.Join(coreVerbs, ", ")),
				})
			}
		}
		return nil
	},
}

var finalizersPermission = checks.Check{
	ID: "finalizers-permission", Group: checks.Components, Severity: checks.Note,
	Title:  "The manager may set owner references where permissions for them are enforced",
	Source: "InfraMachine contract, All resources: API group",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		rules := installed.Rules(s, "Role", "ClusterRole")
		granted := func(crd checks.CRD, resource, verb string) bool {
			return slices.ContainsFunc(rules, func(r installed.Rule) bool { return r.Grants(crd.Spec.Group, resource, verb) })
		}
		var missing []string
		var first *checks.CRD
		for _, crd := range s.CRDs() {
			plural := crd.Spec.Names.Plural
			_, template, ok := installed.ContractKindOf(s, crd)
			written := granted(crd, plural, "update") || granted(crd, plural, "patch")
			if !ok || template || !written || granted(crd, plural+"/finalizers", "update") {
				continue
			}
			missing = append(missing, plural+"/finalizers")
			if first == nil {
				first = &crd
			}
		}
		if first == nil {
			return nil
		}
		report(checks.Finding{
			Place: first.Place(),
			Message: fmt.Sprintf("no role allows to update %s: if the API server enforces permissions for owner references, as OpenShift does, the manager can't make objects of these kinds owners",
				strings.Join(missing, ", ")),
			Fix: "grant update on these subresources to the manager",
		})
		return nil
	},
}
