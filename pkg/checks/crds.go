package checks

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	capicontract "sigs.k8s.io/cluster-api/util/contract"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

const sourceCRDs = "Kubernetes, CustomResourceDefinition versioning"

var crdName = Check{
	ID: "crd-name", Group: Components, Severity: Error,
	Title:  "CRDs have the names by which Cluster API finds them",
	Source: "InfraMachine contract, resource definition; clusterctl init, CRD name preflight check",
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			wanted := capicontract.CalculateCRDName(crd.Spec.Group, crd.Spec.Names.Kind)
			name := crd.Object.GetName()
			if _, skipped := crd.Object.GetAnnotations()[clusterctlv1.SkipCRDNamePreflightCheckAnnotation]; skipped || name == wanted {
				continue
			}
			report(Finding{
				Place:   crd.Place("metadata", "name"),
				Message: fmt.Sprintf("clusterctl init refuses the CRD: by its group and kind, Cluster API looks for it as %s", wanted),
				Fix: fmt.Sprintf("set the plural that gives the name; if no object of Cluster API's ever refers to the kind, annotate the CRD with %s: \"\"",
					clusterctlv1.SkipCRDNamePreflightCheckAnnotation),
			})
		}
	},
}

var crdListKind = Check{
	ID: "crd-list-kind", Group: Components, Severity: Error,
	Title:  "List kinds are called after their kinds",
	Source: "InfraMachine contract, resource definition",
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			_, _, ok := s.contractKindOf(crd)
			kind, list := crd.Spec.Names.Kind, crd.Spec.Names.ListKind
			if !ok || list == "" || list == kind+"List" { // "" is what the API server sets so
				continue
			}
			report(Finding{
				Place:   crd.Place("spec", "names", "listKind"),
				Message: fmt.Sprintf("the list kind is %s, and the contract asks for %sList: Cluster API lists the objects by that kind", list, kind),
				Fix:     "rename the Go type of the list",
			})
		}
	},
}

var crdTemplateKind = Check{
	ID: "crd-template-kind", Group: Components, Severity: Warning,
	Title:  "Kinds that are made from templates have a template kind",
	Source: "InfraMachine contract, template resource definition",
	Run: func(s *Subject, report Report) {
		kinds := map[string]bool{}
		for _, crd := range s.CRDs() {
			kinds[crd.Spec.Names.Kind] = true
		}
		for _, crd := range s.CRDs() {
			resource, template, ok := s.contractKindOf(crd)
			if !ok || template || kinds[crd.Spec.Names.Kind+"Template"] {
				continue
			}
			severity, consequence := Warning, "no MachineDeployment, control plane or ClusterClass can make machines"
			if resource != contract.InfraMachine {
				severity, consequence = Note, "no ClusterClass can make such objects"
			}
			report(Finding{
				Place: crd.Place("spec", "names", "kind"), Severity: severity,
				Message: fmt.Sprintf("there is no %sTemplate: %s", crd.Spec.Names.Kind, consequence),
				Fix:     fmt.Sprintf("define %sTemplate with spec.template.spec, as the contract has it", crd.Spec.Names.Kind),
			})
		}
	},
}

var crdScope = Check{
	ID: "crd-scope", Group: Components, Severity: Error,
	Title:  "Resources that Cluster API works with are namespaced",
	Source: "InfraMachine contract, All resources: scope",
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			if _, _, ok := s.contractKindOf(crd); !ok || crd.Spec.Scope != apiextensionsv1.ClusterScoped {
				continue
			}
			report(Finding{
				Place:   crd.Place("spec", "scope"),
				Message: fmt.Sprintf("%s is cluster-scoped: Cluster API looks for it in the cluster's namespace, and can't own it", crd.Spec.Names.Kind),
				Fix:     "make it namespaced, under a new group, kind or CRD: the scope of one that is installed can't change",
			})
		}
	},
}

var crdStatusSubresource = Check{
	ID: "crd-status-subresource", Group: Components, Severity: Warning,
	Title:  "CRDs with a status have the subresource",
	Source: "Kubernetes API conventions, Spec and Status",
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			for i, v := range crd.Spec.Versions {
				status := schemaField(v, "status")
				if !v.Served || status == nil || len(status.Properties) == 0 || (v.Subresources != nil && v.Subresources.Status != nil) {
					continue
				}
				report(Finding{
					Place:   crd.Place("spec", "versions", i),
					Message: fmt.Sprintf("%s %s has a status and no status subresource: a controller's update of the status fails, or lets users write it", crd.Spec.Names.Kind, v.Name),
					Fix:     "mark the Go type with +kubebuilder:subresource:status",
				})
			}
		}
	},
}

var crdStorageVersion = Check{
	ID: "crd-storage-version", Group: Components, Severity: Error,
	Title:  "Each CRD stores one version, and serves it",
	Source: sourceCRDs,
	Run: func(s *Subject, report Report) {
		for _, crd := range s.CRDs() {
			var stored []string
			for i, v := range crd.Spec.Versions {
				if !v.Storage {
					continue
				}
				stored = append(stored, v.Name)
				if !v.Served {
					report(Finding{
						Place: crd.Place("spec", "versions", i, "served"), Severity: Warning,
						Message: fmt.Sprintf("%s is stored and not served: storage migration and whoever reads what is stored can't ask for it", v.Name),
						Fix:     "serve the version, or store one that is served",
					})
				}
			}
			if len(stored) != 1 {
				what := "no version is stored"
				if len(stored) > 1 {
					what = strings.Join(stored, " and ") + " are both stored"
				}
				report(Finding{
					Place:   crd.Place("spec", "versions"),
					Message: what + ", and the API server refuses a CRD that does not store exactly one",
					Fix:     "mark one Go type with +kubebuilder:storageversion",
				})
			}
		}
	},
}
