package fleet

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
)

// Target says how a host is reached, and what is read from it.
type Target struct {
	// URI of the libvirt daemon.
	URI hosturi.URI
	// Credentials for the daemon.
	Credentials libvirt.Credentials
	// Pools and Networks are the names of the storage pools and libvirt networks.
	Pools, Networks []string
	// Interfaces are the names of the required bridges and devices.
	Interfaces []string
	// Filters are the names of the network filters.
	Filters []string
	// Devices says that PCI devices are read.
	Devices bool
	// UUID is the expected UUID of the hypervisor in lower case, or empty for that of the first answer.
	UUID string
}

// Connect opens a connection to a host. Errors are of type hypervisor.Error, without credentials.
type Connect func(ctx context.Context, target Target) (hypervisor.Hypervisor, error)

// Libvirt connects to libvirt daemons.
func Libvirt(ctx context.Context, target Target) (hypervisor.Hypervisor, error) {
	return libvirt.Connect(ctx, target.URI, target.Credentials)
}

// TargetOf returns the target of a host by its spec, with credentials from its identity's Secret, if any. The error is
// about the URI.
func TargetOf(spec *infrav1.LibvirtHostSpec, secret map[string][]byte) (Target, error) {
	uri, err := hosturi.Parse(spec.URI)
	if err != nil {
		return Target{}, fmt.Errorf("reading spec.uri: %w", err)
	}
	pools := append([]string{spec.StoragePools.Images}, spec.StoragePools.Disks...)
	var networks, interfaces, filters []string
	for _, network := range spec.Networks {
		networks = append(networks, network.LibvirtNetwork)
		interfaces = append(interfaces, network.Bridge, network.MacvtapDevice)
		if network.Filter != nil {
			filters = append(filters, network.Filter.Name)
		}
	}
	return Target{URI: uri, Credentials: credentials(uri.Transport, secret), Pools: distinct(pools), Networks: distinct(networks),
		Interfaces: distinct(interfaces), Filters: distinct(filters), Devices: len(spec.HostDevices) > 0}, nil
}

// distinct sorts names, and removes empty and repeated ones.
func distinct(names []string) []string {
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// credentials reads the Secret of a LibvirtClusterIdentity for a transport. Other keys are ignored, so that changing
// them changes nothing.
func credentials(transport hosturi.Transport, secret map[string][]byte) libvirt.Credentials {
	switch transport {
	case hosturi.TLS:
		return libvirt.Credentials{CACert: secret["ca.crt"], Cert: secret[corev1.TLSCertKey], Key: secret[corev1.TLSPrivateKeyKey]}
	case hosturi.SSH:
		return libvirt.Credentials{PrivateKey: secret[corev1.SSHAuthPrivateKey], KnownHosts: secret["known_hosts"]}
	case hosturi.Unix:
	}
	return libvirt.Credentials{}
}

func (t Target) equal(other Target) bool {
	return t.samePlace(other) && reflect.DeepEqual(t.Credentials, other.Credentials)
}

// samePlace reports whether two targets differ at most by their credentials.
func (t Target) samePlace(other Target) bool {
	return t.URI == other.URI && slices.Equal(t.Pools, other.Pools) && slices.Equal(t.Networks, other.Networks) && slices.Equal(t.Interfaces, other.Interfaces) &&
		slices.Equal(t.Filters, other.Filters) && t.Devices == other.Devices
}
