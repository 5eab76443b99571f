package contract

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/cluster-api/util/contract"
)

// allResources returns the first rules of each page: those about every kind of a resource and about
// the kind itself. The prefix is that of the rules' ids.
func allResources(resource Resource, prefix string) []Rule {
	return []Rule{
		{
			ID: prefix + "-scope", Resource: resource, Name: "All resources: scope", Mandatory: true,
			Title:   fmt.Sprintf("The %s kinds are namespaced", resource),
			Fix:     "set `scope: Namespaced` (in Go, `+kubebuilder:resource:scope=Namespaced`); the scope of a definition can't be changed later",
			verdict: scope,
		},
		{
			ID: prefix + "-type-meta", Resource: resource, Name: "All resources: `TypeMeta` and `ObjectMeta`field", Mandatory: true,
			Title:   fmt.Sprintf("The %s kinds have the standard type and object metadata", resource),
			Fix:     "embed metav1.TypeMeta and metav1.ObjectMeta in the Go type and generate the definition again",
			verdict: typeMeta,
		},
		{
			ID: prefix + "-api-version", Resource: resource, Name: "All resources: `APIVersion` field value", Mandatory: true,
			Title:   fmt.Sprintf("The %s kinds declare a contract version with one of their own versions", resource),
			Fix:     "set the label " + label(v1beta2) + " of the definition to its version that has the contract's fields",
			verdict: apiVersion,
		},
		{
			ID: prefix + "-resource-definition", Resource: resource, Name: fmt.Sprintf("%s, %sList resource definition", resource, resource), Mandatory: true,
			Title:   fmt.Sprintf("The %s kind and its list are defined under the names that Cluster API calculates", resource),
			Fix:     "define the kind under the names of the contract page",
			verdict: definition,
		},
	}
}

// scope holds the kinds to be namespaced.
func scope(i *Implementation) Verdict {
	return i.each(func(crd *CRD) []Problem {
		if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
			return nil
		}
		return []Problem{{
			CRD: crd, Path: []any{"spec", "scope"}, Weight: Broken,
			Reason: fmt.Sprintf("%s has the scope %s: Cluster API looks for its objects in the namespace of the Cluster", crd.kind(), crd.Spec.Scope),
		}}
	})
}

// typeMeta holds the kinds to have apiVersion, kind and metadata. The API server gives them to every
// kind, so a schema that says nothing of them breaks nothing but what explains the kind.
func typeMeta(i *Implementation) Verdict {
	return i.each(func(crd *CRD) []Problem {
		_, index := crd.contractVersion()
		root := crd.root(index)
		var problems []Problem
		for _, want := range []field{must("apiVersion", anyText), must("kind", anyText), must("metadata", anything)} {
			n := root.field(want.name)
			if n.there() {
				problems = append(problems, want.shape.compare(n)...)
				continue
			}
			problems = append(problems, n.problem(Lax, fmt.Sprintf("the schema of %s has no %s: the API server has the field, but kubectl explain and generated clients do not know of it", crd.kind(), want.name)))
		}
		return problems
	})
}

// apiVersion holds the kinds to declare a contract version that names one of their own versions.
func apiVersion(i *Implementation) Verdict {
	return i.each(func(crd *CRD) []Problem {
		refuse := func(format string, args ...any) []Problem {
			return []Problem{{CRD: crd, Path: []any{"metadata", "labels"}, Weight: Broken, Reason: fmt.Sprintf(format, args...)}}
		}
		contract, version := crd.declared()
		if contract == "" {
			return refuse("%s declares none of the contract versions that Cluster API reads (%s): it can't resolve any reference to the kind", crd.kind(), strings.Join(readContracts, ", "))
		}
		for _, v := range crd.Spec.Versions {
			switch {
			case v.Name == version && v.Served:
				return nil
			case v.Name == version:
				p := refuse("%s=%s names a version that the API server does not serve: Cluster API can't read any %s", label(contract), crd.Labels[label(contract)], crd.kind())
				p[0].Path = append(p[0].Path, label(contract))
				return p
			}
		}
		p := refuse("%s=%s makes Cluster API ask for version %s, and %s has %s", label(contract), crd.Labels[label(contract)], version, crd.kind(), versionNames(crd))
		p[0].Path = append(p[0].Path, label(contract))
		return p
	})
}

// versionNames lists the versions of a definition.
func versionNames(crd *CRD) string {
	names := make([]string, 0, len(crd.Spec.Versions))
	for _, v := range crd.Spec.Versions {
		names = append(names, v.Name)
	}
	return strings.Join(names, " and ")
}

// definition holds the release to have the kind, under the names that the contract gives it.
func definition(i *Implementation) Verdict {
	if i.CRD == nil {
		reason := fmt.Sprintf("no kind of the release is one of the contract's %s: a provider of this type has to define one", i.Resource)
		if i.Template != nil {
			reason = fmt.Sprintf("there is a %s, and no %s that could be made from it", i.Template.kind(), i.Kind())
		}
		return Verdict{State: Missing, Problems: []Problem{{CRD: i.Template, Weight: Broken, Reason: reason}}}
	}
	return verdictOf(names(i.CRD))
}

// names holds a definition to the names that Cluster API calculates.
func names(crd *CRD) []Problem {
	var problems []Problem
	if want := contract.CalculateCRDName(crd.Spec.Group, crd.kind()); crd.Name != want {
		problems = append(problems, Problem{
			CRD: crd, Path: []any{"metadata", "name"}, Weight: Broken,
			Reason: fmt.Sprintf("the definition of %s is called %s, and Cluster API looks for %s", crd.kind(), crd.Name, want),
			Fix:    fmt.Sprintf("set the plural to %s (in Go, +kubebuilder:resource:path=...)", strings.TrimSuffix(want, "."+crd.Spec.Group)),
		})
	}
	if want := crd.kind() + "List"; crd.Spec.Names.ListKind != "" && crd.Spec.Names.ListKind != want {
		problems = append(problems, Problem{
			CRD: crd, Path: []any{"spec", "names", "listKind"}, Weight: Broken,
			Reason: fmt.Sprintf("the list of %s is called %s, and the contract has %s", crd.kind(), crd.Spec.Names.ListKind, want),
			Fix:    "call the list's Go type " + want + " and generate the definition again",
		})
	}
	return problems
}

// template holds the kind to have its template, with the names and fields that Cluster API reads.
func template(i *Implementation) Verdict {
	switch {
	case i.Template != nil:
	case i.CRD == nil:
		return Verdict{State: NotApplicable}
	case i.isPoolMachine():
		return Verdict{State: NotApplicable, Detail: "the machines of a pool are made by the pool's controller"}
	default:
		name := i.CRD.kind() + "Template"
		return Verdict{State: Missing, Problems: []Problem{{
			CRD: i.CRD, Path: []any{"spec", "names", "kind"}, Weight: Broken,
			Reason: fmt.Sprintf("there is no %s: nothing can be made from templates of %s", name, i.CRD.kind()),
			Fix:    "define the kind " + name + " with spec.template.spec",
		}}}
	}
	problems := names(i.Template)
	_, index := i.Template.contractVersion()
	spec := i.Template.root(index).at("spec", "template", "spec")
	if !spec.there() {
		problems = append(problems, spec.problem(Broken, fmt.Sprintf("%s has no spec.template.spec: Cluster API copies it into every %s", i.Template.kind(), i.Kind())))
	} else {
		problems = append(problems, anything.compare(spec)...)
	}
	if metadata := i.Template.root(index).at("spec", "template", "metadata"); metadata.there() {
		problems = append(problems, anything.compare(metadata)...)
	}
	return verdictOf(problems)
}

// each holds the definitions of the kind and its template against something.
func (i *Implementation) each(compare func(*CRD) []Problem) Verdict {
	crds := i.crds()
	if i.CRD == nil {
		return Verdict{State: NotApplicable, Detail: "there is no such kind"}
	}
	var problems []Problem
	for _, crd := range crds {
		problems = append(problems, compare(crd)...)
	}
	return verdictOf(problems)
}

// verdictOf returns the verdict for what was found in something that is there.
func verdictOf(problems []Problem) Verdict {
	v := Verdict{State: Present, Problems: problems}
	for _, p := range problems {
		if p.Weight != Deprecated {
			v.State = Wrong
		}
	}
	return v
}
