package fleet

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor/libvirt"
)

// Target says how a host is reached and what of it is looked at.
type Target struct {
	// URI of the libvirt daemon.
	URI hosturi.URI
	// Credentials to reach it with.
	Credentials libvirt.Credentials
	// Pools and Networks are the names of the storage pools and libvirt networks to look at.
	Pools, Networks []string
	// Interfaces are the names of the bridges and devices to look for.
	Interfaces []string
	// Filters are the names of the network filters to look for.
	Filters []string
	// Devices reports whether PCI devices are looked at.
	Devices bool
	// UUID is that of the hypervisor which has to answer, in lower case. Empty accepts the first one that does,
	// and from then on only that one.
	UUID string
}

// Connect opens a connection to a host. It ends when its context does, and its errors are of type
// hypervisor.Error, without credentials.
type Connect func(ctx context.Context, target Target) (hypervisor.Hypervisor, error)

// Libvirt connects to libvirt daemons.
func Libvirt(ctx context.Context, target Target) (hypervisor.Hypervisor, error) {
	return libvirt.Connect(ctx, target.URI, target.Credentials)
}

// TargetOf returns how a host is reached by its spec, with credentials from the data of its identity's
// Secret, or none. The error is of the URI.
func TargetOf(spec *infrav1.LibvirtHostSpec, secret map[string][]byte) (Target, error) {
	uri, err := hosturi.Parse(spec.URI)
	if err != nil {
		return Target{}, fmt.Errorf("reading spec.uri: %w", err)
	}
	pools := map[string]bool{spec.StoragePools.Images: true}
	for _, pool := range spec.StoragePools.Disks {
		pools[pool] = true
	}
	networks, interfaces, filters := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, network := range spec.Networks {
		networks[network.LibvirtNetwork] = true
		interfaces[network.Bridge] = true
		interfaces[network.MacvtapDevice] = true
		if network.Filter != nil {
			filters[network.Filter.Name] = true
		}
	}
	for _, names := range []map[string]bool{pools, networks, interfaces} {
		delete(names, "")
	}
	return Target{URI: uri, Credentials: credentials(uri.Transport, secret),
		Pools: slices.Sorted(maps.Keys(pools)), Networks: slices.Sorted(maps.Keys(networks)),
		Interfaces: slices.Sorted(maps.Keys(interfaces)), Filters: slices.Sorted(maps.Keys(filters)), Devices: len(spec.HostDevices) > 0}, nil
}

// credentials reads a Secret of a LibvirtClusterIdentity as spec.secretRef there documents it: of a
// Secret that has both, only what the transport needs, so that a change of the rest changes nothing.
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

// samePlace reports whether the same is looked at, with whatever credentials.
func (t Target) samePlace(other Target) bool {
	return t.URI == other.URI && slices.Equal(t.Pools, other.Pools) && slices.Equal(t.Networks, other.Networks) && slices.Equal(t.Interfaces, other.Interfaces) &&
		slices.Equal(t.Filters, other.Filters) && t.Devices == other.Devices
}
