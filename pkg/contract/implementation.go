package contract

import (
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// Implementation is a kind with a role in the contract, with its template.
type Implementation struct {
	Resource Resource
	// CRD defines the kind; nil if the release lacks a mandatory kind.
	CRD *CRD
	// Template defines the kind's template, or is nil.
	Template *CRD
	// Contract is the newest contract version that the CRD declares and Cluster API supports, or "".
	Contract string
	// Version is the version of the kind that the rules are checked on.
	Version string

	root node
	// old means that the fields are those of the v1beta1 contract.
	old bool
}

// role is how kinds of a resource are recognized.
type role struct {
	resource Resource
	// suffix is the ending of the kinds' names, by the convention of the contract pages.
	suffix string
	// groups are parts of an API group's name; providers are types of providers. A kind belongs to the resource if its
	// group says so, or if the group does not decide and the provider's type does.
	group     string
	providers []clusterctlv1.ProviderType
	// signature are fields of these kinds that other kinds with the same ending don't have.
	signature []string
}

// roles are in an order in which no suffix hides another.
var roles = []role{
	{InfraCluster, "Cluster", "infrastructure", []clusterctlv1.ProviderType{clusterctlv1.InfrastructureProviderType},
		[]string{"spec.controlPlaneEndpoint", "status.initialization", "status.ready"}},
	{InfraMachine, "Machine", "infrastructure", []clusterctlv1.ProviderType{clusterctlv1.InfrastructureProviderType},
		[]string{"spec.providerID"}},
	{InfraMachinePool, "MachinePool", "infrastructure", []clusterctlv1.ProviderType{clusterctlv1.InfrastructureProviderType},
		[]string{"spec.providerIDList"}},
	{BootstrapConfig, "Config", "bootstrap", []clusterctlv1.ProviderType{clusterctlv1.BootstrapProviderType},
		[]string{"status.dataSecretName"}},
	{ControlPlane, "ControlPlane", "controlplane", []clusterctlv1.ProviderType{clusterctlv1.ControlPlaneProviderType, clusterctlv1.InfrastructureProviderType},
		[]string{"status.initialization", "status.initialized", "status.ready"}},
	{IPAM, "Pool", "ipam", []clusterctlv1.ProviderType{clusterctlv1.IPAMProviderType}, nil},
}

// mandatory is the resource that a provider of a type must define. Other types, such as core, add-ons and runtime
// extensions, may have kinds with similar names, but no contract covers them.
var mandatory = map[clusterctlv1.ProviderType]Resource{
	clusterctlv1.InfrastructureProviderType: InfraCluster,
	clusterctlv1.BootstrapProviderType:      BootstrapConfig,
	clusterctlv1.ControlPlaneProviderType:   ControlPlane,
	clusterctlv1.IPAMProviderType:           IPAM,
}

// Implementations returns the kinds of a provider with a role in the contract, in the order of the contract pages.
// Other kinds, such as identities and hosts, are not among them. A missing kind is among them without a CRD if it is
// mandatory for providers of this type, or if its template exists.
func Implementations(provider clusterctlv1.ProviderType, crds []CRD) []*Implementation {
	if mandatory[provider] == "" {
		return nil
	}
	var implementations []*Implementation
	for _, r := range roles {
		kinds := r.kinds(provider, crds)
		if len(kinds) == 0 && mandatory[provider] == r.resource {
			kinds = append(kinds, &Implementation{Resource: r.resource})
		}
		implementations = append(implementations, kinds...)
	}
	return implementations
}

// kinds returns the implementations of a role's resource.
func (r role) kinds(provider clusterctlv1.ProviderType, crds []CRD) []*Implementation {
	var known, likely []*Implementation
	for i := range crds {
		crd := &crds[i]
		if !r.fits(provider, crd, "") {
			continue
		}
		implementation := newImplementation(r.resource, crd, crds)
		_, grouped := groupRole(crd.Spec.Group)
		switch {
		case r.signed(implementation):
			known = append(known, implementation)
		case grouped || mandatory[provider] == r.resource:
			likely = append(likely, implementation)
		}
	}
	if len(known) == 0 {
		known = likely // the only candidates, even if they have defects
	}
	return append(known, r.orphans(provider, crds)...)
}

// fits reports whether a CRD's group and kind, without a suffix, match the role.
func (r role) fits(provider clusterctlv1.ProviderType, crd *CRD, suffix string) bool {
	prefix, ok := strings.CutSuffix(crd.kind(), r.suffix+suffix)
	if !ok || prefix == "" {
		return false
	}
	if group, ok := groupRole(crd.Spec.Group); ok && group != r.group {
		// A group determines the role of its kinds, except for control planes that are separate from clusters.
		return r.resource == ControlPlane && group == "infrastructure"
	} else if ok {
		return true
	}
	return slices.Contains(r.providers, provider)
}

// groupRole returns the part of a group's name that determines the role of its kinds.
func groupRole(group string) (string, bool) {
	for _, part := range strings.Split(group, ".") {
		for _, r := range roles {
			if part == r.group {
				return part, true
			}
		}
	}
	return "", false
}

// signed reports whether more than its name makes a kind one of the contract: it has a template, or a field that the
// contract requires.
func (r role) signed(i *Implementation) bool {
	if i.Template != nil || r.signature == nil {
		return true
	}
	return slices.ContainsFunc(r.signature, func(path string) bool { return i.root.at(path).schema != nil })
}

// orphans returns an implementation without a CRD for each template whose kind is missing.
func (r role) orphans(provider clusterctlv1.ProviderType, crds []CRD) []*Implementation {
	var orphans []*Implementation
	for i := range crds {
		template := &crds[i]
		if !r.fits(provider, template, "Template") || findCRD(crds, template.Spec.Group, strings.TrimSuffix(template.kind(), "Template")) != nil {
			continue
		}
		orphans = append(orphans, &Implementation{Resource: r.resource, Template: template})
	}
	return orphans
}

// newImplementation reads what a definition declares.
func newImplementation(resource Resource, crd *CRD, crds []CRD) *Implementation {
	i := &Implementation{Resource: resource, CRD: crd, Template: findCRD(crds, crd.Spec.Group, crd.kind()+"Template")}
	i.Contract, _ = crd.declared()
	contract, index := crd.contractVersion()
	i.old = contract == v1beta1
	i.root = crd.root(index)
	if index < len(crd.Spec.Versions) {
		i.Version = crd.Spec.Versions[index].Name
	}
	return i
}

// findCRD returns the definition of a kind, or nil.
func findCRD(crds []CRD, group, kind string) *CRD {
	for i := range crds {
		if crds[i].Spec.Group == group && crds[i].kind() == kind {
			return &crds[i]
		}
	}
	return nil
}

// isPoolMachine reports whether the kind is that of the machines of a pool: the pool's controller creates them with
// their provider IDs, and Cluster API creates none.
//
// Source: InfraMachinePool contract, MachinePoolMachines support.
func (i *Implementation) isPoolMachine() bool {
	return i.Resource == InfraMachine && strings.HasSuffix(i.Kind(), "PoolMachine")
}

// Kind returns the name of the kind, or a description if it is missing.
func (i *Implementation) Kind() string {
	switch {
	case i.CRD != nil:
		return i.CRD.kind()
	case i.Template != nil:
		return strings.TrimSuffix(i.Template.kind(), "Template")
	}
	return ""
}
