package components

import (
	"fmt"
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	capicontract "sigs.k8s.io/cluster-api/util/contract"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

const sourceCRDs = "Kubernetes, CustomResourceDefinition versioning"

var crdName = checks.Check{
	ID: "crd-name", Group: checks.Components, Severity: checks.Error,
	Title:  "CRDs have the names by which Cluster API finds them",
	Source: "InfraMachine contract, resource definition; clusterctl init, CRD name preflight check",
	Run: checks.Each((*checks.Subject).CRDs, func(s *checks.Subject, crd checks.CRD, report checks.Report) {
		wanted := capicontract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)
		name := crd.Object.GetName()
		if _, skipped := crd.Object.GetAnnotations()[clusterctlv1.SkipCRDNamePreflightCheckAnnotation]; skipped || name == wanted {
			return
		}
		if _, _, ok := installed.ContractKindOf(s, crd); ok {
			return // the contract's check of the resource definition reports it
		}
		report(checks.Finding{
			Place:   crd.Place("metadata", "name"),
			Message: fmt.Sprintf("clusterctl init refuses the CRD: for its group and kind, Cluster API expects the name %s", wanted),
			Fix: fmt.Sprintf("set the plural that results in the name; if no object of Cluster API refers to the kind, annotate the CRD with %s: \"\"",
				clusterctlv1.SkipCRDNamePreflightCheckAnnotation),
		})
	}),
}

var crdTemplateKind = checks.Check{
	ID: "crd-template-kind", Group: checks.Components, Severity: checks.Note,
	Title:  "Kinds that a ClusterClass could create have a template kind",
	Source: "InfraMachine contract, template resource definition",
	Run: checks.Each((*checks.Subject).CRDs, func(s *checks.Subject, crd checks.CRD, report checks.Report) {
		resource, isTemplate, ok := installed.ContractKindOf(s, crd)
		// The contract requires templates of machines and bootstrap configurations, and its check reports missing ones.
		if !ok || isTemplate || resource == contract.InfraMachine || resource == contract.BootstrapConfig {
			return
		}
		template := crd.Spec.Names.Kind + "Template"
		if slices.ContainsFunc(s.CRDs(), func(other checks.CRD) bool { return other.Spec.Names.Kind == template }) {
			return
		}
		report(checks.Finding{
			Place:   crd.Place("spec", "names", "kind"),
			Message: fmt.Sprintf("the kind %s is missing: a ClusterClass can't create such objects", template),
			Fix:     fmt.Sprintf("define %s with spec.template.spec, as the contract requires", template),
		})
	}),
}

var crdStatusSubresource = checks.Check{
	ID: "crd-status-subresource", Group: checks.Components, Severity: checks.Warning,
	Title:  "CRDs with a status have the status subresource",
	Source: "Kubernetes API conventions, Spec and Status",
	Run: checks.Each((*checks.Subject).CRDs, func(_ *checks.Subject, crd checks.CRD, report checks.Report) {
		for i, v := range crd.Spec.Versions {
			status := installed.SchemaField(v, "status")
			if !v.Served || status == nil || len(status.Properties) == 0 || (v.Subresources != nil && v.Subresources.Status != nil) {
				continue
			}
			report(checks.Finding{
				Place:   crd.Place("spec", "versions", i),
				Message: fmt.Sprintf("%s %s has a status without the status subresource: a controller's update of the status fails, or users can write the status", crd.Spec.Names.Kind, v.Name),
				Fix:     "mark the Go type with +kubebuilder:subresource:status",
			})
		}
	}),
}

var crdStorageVersion = checks.Check{
	ID: "crd-storage-version", Group: checks.Components, Severity: checks.Error,
	Title:  "Each CRD stores one version, and serves it",
	Source: sourceCRDs,
	Run: checks.Each((*checks.Subject).CRDs, func(_ *checks.Subject, crd checks.CRD, report checks.Report) {
		var stored []string
		for i, v := range crd.Spec.Versions {
			if !v.Storage {
				continue
			}
			stored = append(stored, v.Name)
			if !v.Served {
				report(checks.Finding{
					Place: crd.Place("spec", "versions", i, "served"), Severity: checks.Warning,
					Message: fmt.Sprintf("%s is stored and not served: storage migration and clients can't read stored objects in that version", v.Name),
					Fix:     "serve the version, or store one that is served",
				})
			}
		}
		if len(stored) != 1 {
			what := "no version is stored"
			if len(stored) > 1 {
				what = strings.Join(stored, " and ") + " are both stored"
			}
			report(checks.Finding{
				Place:   crd.Place("spec", "versions"),
				Message: what + ", but the API server accepts only a CRD that stores exactly one",
				Fix:     "mark one Go type with +kubebuilder:storageversion",
			})
		}
	}),
}
