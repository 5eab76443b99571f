package contract

import (
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

// Implementation is a kind that plays a part in the contract, with its template.
type Implementation struct {
	Resource Resource
	// CRD defines the kind; nil where the release lacks a kind that it must have.
	CRD *CRD
	// Template defines the kind's template, or is nil.
	Template *CRD
	// Contract is the newest contract version that the CRD declares and Cluster API reads, or "".
	Contract string
	// Version is the kind's version that the rules are checked on.
	Version string

	root node
	// old says that the fields are those of the v1beta1 contract.
	old bool
}

// role is how kinds of a resource are recognized.
type role struct {
	resource Resource
	// suffix is what the names of kinds end in, by the convention of the contract pages.
	suffix string
	// groups are parts of an API group's name; providers are types of providers. A kind is of the
	// resource if its group says so, or if the group says nothing and the provider's type does.
	group     string
	providers []clusterctlv1.ProviderType
	// signature are fields that the kinds have and others of the same ending have not.
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

// contractProviders are the types of providers that have resources of these contracts. Core, add-ons
// and runtime extensions have kinds that are called alike, and no contract is about them.
var contractProviders = []clusterctlv1.ProviderType{
	clusterctlv1.InfrastructureProviderType, clusterctlv1.BootstrapProviderType,
	clusterctlv1.ControlPlaneProviderType, clusterctlv1.IPAMProviderType,
}

// mandatory is the resource that a provider of a type has to have.
var mandatory = map[clusterctlv1.ProviderType]Resource{
	clusterctlv1.InfrastructureProviderType: InfraCluster,
	clusterctlv1.BootstrapProviderType:      BootstrapConfig,
	clusterctlv1.ControlPlaneProviderType:   ControlPlane,
	clusterctlv1.IPAMProviderType:           IPAM,
}

// Implementations returns the kinds of a provider that play a part in the contract, in the order of
// the contract pages. Kinds that play none, such as identities and hosts, are not among them. A
// resource that a provider of this type must have, and one whose template is there, is among them
// without a CRD where its kind is missing.
func Implementations(provider clusterctlv1.ProviderType, crds []CRD) []*Implementation {
	if !slices.Contains(contractProviders, provider) {
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
		known = likely // whatever is wrong with them, there are no others
	}
	return append(known, r.orphans(provider, crds)...)
}

// fits says whether a definition's group and kind, with a suffix behind it, are those of the role.
func (r role) fits(provider clusterctlv1.ProviderType, crd *CRD, suffix string) bool {
	prefix, ok := strings.CutSuffix(crd.kind(), r.suffix+suffix)
	if !ok || prefix == "" {
		return false
	}
	if group, ok := groupRole(crd.Spec.Group); ok && group != r.group {
		// A group says which part its kinds play, but for control planes that live apart from clusters.
		return r.resource == ControlPlane && group == "infrastructure"
	} else if ok {
		return true
	}
	return slices.Contains(r.providers, provider)
}

// groupRole returns the part of a group's name that says what its kinds are for.
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

// signed says whether a kind is one of the contract's beyond its name: it has a template, or a field
// that the contract asks for.
func (r role) signed(i *Implementation) bool {
	if i.Template != nil || r.signature == nil {
		return true
	}
	return slices.ContainsFunc(r.signature, func(path string) bool { return i.root.at(path).schema != nil })
}

// orphans returns an implementation without a CRD for each template whose own kind is missing.
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

// isPoolMachine says whether the kind is that of the machines of a pool: the pool's controller makes
// them, with their provider IDs, and Cluster API makes none.
// Source: InfraMachinePool contract, MachinePoolMachines support.
func (i *Implementation) isPoolMachine() bool {
	return i.Resource == InfraMachine && strings.HasSuffix(i.Kind(), "PoolMachine")
}

// Kind returns the name of the kind, or what is known of it where it is missing.
func (i *Implementation) Kind() string {
	switch {
	case i.CRD != nil:
		return i.CRD.kind()
	case i.Template != nil:
		return strings.TrimSuffix(i.Template.kind(), "Template")
	}
	return ""
}
