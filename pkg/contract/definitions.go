package contract

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/cluster-api/util/contract"
)

// scope judges whether a kind is namespaced.
func scope(crd *CRD) []Problem {
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		return nil
	}
	return []Problem{crd.problem(fmt.Sprintf("%s has the scope %s: Cluster API looks for its objects in the namespace of the Cluster", crd.kind(), crd.Spec.Scope), "spec", "scope")}
}

// problem returns a problem at a path of the CRD that prevents Cluster API from working with it.
func (c *CRD) problem(reason string, path ...any) Problem {
	return Problem{CRD: c, Path: path, Weight: Broken, Reason: reason}
}

// typeMeta judges whether a kind has apiVersion, kind and metadata. The API server adds them to every kind, so a schema
// without them breaks only tools that explain the kind.
func typeMeta(crd *CRD) []Problem {
	root := crd.contractRoot()
	var problems []Problem
	for _, want := range []field{must("apiVersion", anyText), must("kind", anyText), must("metadata", anything)} {
		n := root.field(want.name)
		if n.there() {
			problems = append(problems, want.shape.compare(n)...)
			continue
		}
		problems = append(problems, n.problem(Lax, fmt.Sprintf("the schema of %s has no %s: the API server has the field, but kubectl explain and generated clients do not know it", crd.kind(), want.name)))
	}
	return problems
}

// apiVersion judges whether a kind declares a contract version that names one of its own versions.
func apiVersion(crd *CRD) []Problem {
	contract, version := crd.declared()
	if contract == "" {
		return []Problem{crd.problem(fmt.Sprintf("%s declares no contract version that Cluster API supports (%s): it can't resolve references to the kind", crd.kind(), strings.Join(readContracts, ", ")), "metadata", "labels")}
	}
	declared := fmt.Sprintf("%s=%s", label(contract), crd.Labels[label(contract)])
	var names []string
	for _, v := range crd.Spec.Versions {
		switch {
		case v.Name == version && v.Served:
			return nil
		case v.Name == version:
			return []Problem{crd.problem(fmt.Sprintf("%s names a version that the API server does not serve: Cluster API can't read any %s", declared, crd.kind()), "metadata", "labels", label(contract))}
		}
		names = append(names, v.Name)
	}
	return []Problem{crd.problem(fmt.Sprintf("%s makes Cluster API request version %s, but %s has %s", declared, version, crd.kind(), strings.Join(names, " and ")), "metadata", "labels", label(contract))}
}

// poolServed judges whether a kind of pools is served.
func poolServed(crd *CRD) []Problem {
	storage := 0
	for k, v := range crd.Spec.Versions {
		if v.Served && crd.Spec.Group != "" {
			return nil
		}
		if v.Storage {
			storage = k
		}
	}
	versions := "it has one"
	if n := len(crd.Spec.Versions); n != 1 {
		versions = fmt.Sprintf("it has %d", n)
	}
	return []Problem{crd.problem(fmt.Sprintf("no version of %s is served (%s): claims can't refer to a pool of that kind", crd.kind(), versions), "spec", "versions", storage, "served")}
}

// definition judges whether the release defines the kind with the names of the contract.
func definition(i *Implementation) Verdict {
	switch {
	case i.CRD != nil:
		return verdictOf(names(i.CRD))
	case i.Template != nil:
		return Verdict{State: Missing, Problems: []Problem{i.Template.problem(fmt.Sprintf("the release defines %s, but not the kind %s of its objects", i.Template.kind(), i.Kind()))}}
	}
	return Verdict{State: Missing, Problems: []Problem{{
		Weight: Broken, Reason: fmt.Sprintf("no kind of the release is the contract's %s: a provider of this type has to define one", i.Resource),
	}}}
}

// names judges whether the names of a CRD are those that Cluster API calculates.
func names(crd *CRD) []Problem {
	var problems []Problem
	if want := contract.CalculateCRDName(crd.Spec.Group, crd.kind()); crd.Name != want {
		p := crd.problem(fmt.Sprintf("the CRD of %s is called %s, but Cluster API looks for %s", crd.kind(), crd.Name, want), "metadata", "name")
		p.Fix = fmt.Sprintf("set the plural to %s (in Go, +kubebuilder:resource:path=...)", strings.TrimSuffix(want, "."+crd.Spec.Group))
		problems = append(problems, p)
	}
	if want := crd.kind() + "List"; crd.Spec.Names.ListKind != "" && crd.Spec.Names.ListKind != want {
		p := crd.problem(fmt.Sprintf("the list of %s is called %s, but the contract requires %s", crd.kind(), crd.Spec.Names.ListKind, want), "spec", "names", "listKind")
		p.Fix = "rename the list's Go type to " + want + " and generate the CRD again"
		problems = append(problems, p)
	}
	return problems
}

// template judges whether the kind has its template with the names and fields that Cluster API reads.
func template(i *Implementation) Verdict {
	switch {
	case i.Template != nil:
	case i.CRD == nil:
		return Verdict{State: NotApplicable}
	case i.isPoolMachine():
		return Verdict{State: NotApplicable, Detail: "the pool's controller creates the machines of a pool"}
	default:
		name := i.CRD.kind() + "Template"
		p := i.CRD.problem(fmt.Sprintf("the kind %s is missing: templates of %s can't be used", name, i.CRD.kind()), "spec", "names", "kind")
		p.Fix = "define the kind " + name + " with spec.template.spec"
		return Verdict{State: Missing, Problems: []Problem{p}}
	}
	problems := names(i.Template)
	root := i.Template.contractRoot()
	if spec := root.at("spec.template.spec"); spec.there() {
		problems = append(problems, anything.compare(spec)...)
	} else {
		problems = append(problems, spec.problem(Broken, fmt.Sprintf("%s has no spec.template.spec: Cluster API copies it into every %s", i.Template.kind(), i.Kind())))
	}
	if metadata := root.at("spec.template.metadata"); metadata.there() {
		problems = append(problems, anything.compare(metadata)...)
	}
	return verdictOf(problems)
}

// autoscaling judges two fields of the template's status.
func autoscaling(i *Implementation) Verdict {
	if i.Template == nil {
		return Verdict{State: NotApplicable, Detail: "the kind has no template"}
	}
	status := i.Template.contractRoot().field("status")
	if !status.field("capacity").there() && !status.field("nodeInfo").there() {
		return Verdict{State: Missing, Detail: "status.capacity of " + i.Template.kind()}
	}
	want := fields{
		may("capacity", mapOf(shape{kind: typeQuantity})),
		may("nodeInfo", object(may("architecture", anyText), may("operatingSystem", anyText))),
	}
	return Verdict{Detail: "status of " + i.Template.kind()}.with(want.compare(status))
}
