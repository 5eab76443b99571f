package release

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
)

// Provider identifies a provider as clusterctl does: by name and type.
type Provider struct {
	// Name is the provider's clusterctl name, e.g. "libvirt".
	Name string
	// Type is clusterctl's provider type, e.g. InfrastructureProvider.
	Type clusterctlv1.ProviderType
}

// providerTypes lists every provider type with the name of its clusterctl flag, which is also the prefix of its
// components YAML.
//
// Source: clusterctl provider contract, "Components YAML", "Naming conventions".
var providerTypes = []struct {
	Type clusterctlv1.ProviderType
	flag string
}{
	{clusterctlv1.CoreProviderType, "core"},
	{clusterctlv1.BootstrapProviderType, "bootstrap"},
	{clusterctlv1.ControlPlaneProviderType, "control-plane"},
	{clusterctlv1.InfrastructureProviderType, "infrastructure"},
	{clusterctlv1.IPAMProviderType, "ipam"},
	{clusterctlv1.RuntimeExtensionProviderType, "runtime-extension"},
	{clusterctlv1.AddonProviderType, "addon"},
}

// ProviderTypes returns clusterctl's provider types in clusterctl's own order.
func ProviderTypes() []clusterctlv1.ProviderType {
	types := make([]clusterctlv1.ProviderType, 0, len(providerTypes))
	for _, t := range providerTypes {
		types = append(types, t.Type)
	}
	return types
}

// ErrNoProviderLabel means that a text is not the label of a provider.
var ErrNoProviderLabel = errors.New("not a provider label")

// ParseLabel returns the provider of a label such as "infrastructure-libvirt". The error is ErrNoProviderLabel if no
// provider has that label.
func ParseLabel(label string) (Provider, error) {
	if label == config.ClusterAPIProviderName {
		return Provider{Name: label, Type: clusterctlv1.CoreProviderType}, nil
	}
	for _, t := range providerTypes {
		if t.Type == clusterctlv1.CoreProviderType {
			continue
		}
		// clusterctl's own function returns the prefix, so that it always matches what clusterctl looks for.
		if name, ok := strings.CutPrefix(label, clusterctlv1.ManifestLabel("", t.Type)); ok {
			p := Provider{Name: name, Type: t.Type}
			return p, p.Validate()
		}
	}
	return Provider{}, fmt.Errorf("%q: %w: expected %q or a name after bootstrap-, control-plane-, infrastructure-, ipam-, runtime-extension- or addon-",
		label, ErrNoProviderLabel, config.ClusterAPIProviderName)
}

// Label returns the value of the label cluster.x-k8s.io/provider, which is also the name of the
// provider's folder in a local repository, e.g. "infrastructure-libvirt".
func (p Provider) Label() string {
	return clusterctlv1.ManifestLabel(p.Name, p.Type)
}

// ComponentsFile returns the contract's file name for the components YAML of a provider of this type, or "" for an
// unknown type.
func (p Provider) ComponentsFile() string {
	if flag := p.ClusterctlFlag(); flag != "" {
		return flag + "-components.yaml"
	}
	return ""
}

// ClusterctlFlag returns the clusterctl flag that names a provider of this type, e.g. "infrastructure".
func (p Provider) ClusterctlFlag() string {
	for _, t := range providerTypes {
		if t.Type == p.Type {
			return t.flag
		}
	}
	return ""
}

// Validate returns an error if clusterctl would refuse the provider's name or type.
//
// Source: clusterctl provider contract, "Adding a provider to clusterctl".
func (p Provider) Validate() error {
	if p.ComponentsFile() == "" {
		return fmt.Errorf("provider %q: type %q is unknown: use one of %v", p.Name, p.Type, ProviderTypes())
	}
	if p.Name == "" {
		return fmt.Errorf("a provider of type %s has no name", p.Type)
	}
	if problems := validation.IsDNS1123Label(p.Name); len(problems) > 0 {
		return fmt.Errorf("provider name %q: %s", p.Name, strings.Join(problems, "; "))
	}
	if (p.Name == config.ClusterAPIProviderName) != (p.Type == clusterctlv1.CoreProviderType) {
		return fmt.Errorf("provider %q of type %s: clusterctl accepts the name %q only for the %s",
			p.Name, p.Type, config.ClusterAPIProviderName, clusterctlv1.CoreProviderType)
	}
	return nil
}
