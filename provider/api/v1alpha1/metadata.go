package v1alpha1

// Finalizers. Each is removed when everything that was created for its object is deleted.
const (
	// ClusterFinalizer keeps a LibvirtCluster until its load balancer and its claims are deleted.
	ClusterFinalizer = "libvirtcluster.infrastructure.cluster.x-k8s.io"

	// MachineFinalizer keeps a LibvirtMachine until its domain, volumes and seed are deleted from the host. The
	// domain is undefined last, because its metadata names the owner.
	MachineFinalizer = "libvirtmachine.infrastructure.cluster.x-k8s.io"

	// MachinePoolFinalizer keeps a LibvirtMachinePool until all of its LibvirtMachines are deleted.
	MachinePoolFinalizer = "libvirtmachinepool.infrastructure.cluster.x-k8s.io"

	// HostFinalizer keeps a LibvirtHost while a LibvirtMachine is bound to it.
	HostFinalizer = "libvirthost.infrastructure.cluster.x-k8s.io"

	// ClusterIdentityFinalizer keeps a LibvirtClusterIdentity while a LibvirtHost refers to it.
	ClusterIdentityFinalizer = "libvirtclusteridentity.infrastructure.cluster.x-k8s.io"
)

// Labels that the provider sets.
const (
	// HostLabel on a LibvirtMachine is the name of its LibvirtHost, derived from spec.hostName. It is for selecting
	// machines by host.
	HostLabel = "libvirt.infrastructure.cluster.x-k8s.io/host"

	// PoolLabel on a LibvirtMachine is the name of its LibvirtMachinePool.
	PoolLabel = "libvirt.infrastructure.cluster.x-k8s.io/machine-pool"

	// LoadBalancerLabel marks a LibvirtMachine as the load balancer of a LibvirtCluster. Its value is the name of
	// that LibvirtCluster, which is its controller. It has no Machine.
	LoadBalancerLabel = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer"
)

// Annotations that the provider sets for the load balancer of a LibvirtCluster.
const (
	// LoadBalancerConfigurationAnnotation on a load balancer has its port and its servers, in JSON.
	LoadBalancerConfigurationAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer-configuration"

	// LoadBalancerMACAddressAnnotation on a LibvirtCluster is the MAC address of its load balancers. Replacements
	// keep it, so that DHCP gives each the same address. It is set before the first one is created, if the endpoint
	// is an address from DHCP.
	LoadBalancerMACAddressAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer-mac-address"
)

// Annotations that the provider sets on LibvirtMachinePools and their machines.
const (
	// LastMachineNumberAnnotation on a LibvirtMachinePool is the highest number in the name of a machine of the pool. It
	// is set before a machine is created, so that no name is used twice: Cluster API finds nodes by name too.
	LastMachineNumberAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/machines-made"

	// SourceHashAnnotation on a LibvirtMachine of a pool has a hash of its template, and one of the version and
	// bootstrap data of the MachinePool.
	SourceHashAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/made-from"

	// FailureDomainAnnotation on a LibvirtMachine of a pool is its required failure domain, one of those of the
	// MachinePool. The Machines of a pool have no failure domain.
	FailureDomainAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/failure-domain"
)

// Annotations that the provider sets on LibvirtMachines.
const (
	// UpdateStartedAnnotation on a LibvirtMachine marks an update in place for which the host has room. Its value is
	// the start time in RFC 3339. It is set before the domain is shut down, and removed when the domain runs again.
	UpdateStartedAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/in-place-update-started"
)

// Annotations that the provider sets on LibvirtHosts.
const (
	// HypervisorUUIDAnnotation on a LibvirtHost is the UUID of its hypervisor from libvirt's capabilities, set at the
	// first contact. When another hypervisor answers, nothing on the host counts as missing; set the annotation to
	// the new UUID to accept it. `clusterctl move` moves annotations.
	HypervisorUUIDAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/hypervisor-uuid"
)

// Annotations that users set.
const (
	// HostLostAnnotation on a LibvirtMachine says that its host is lost: deleting the machine then leaves the domain
	// and volumes on the host. Its value must be the name of the host, so that a copied annotation has no effect.
	HostLostAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/host-lost"
)

// Provider IDs.
const (
	// ProviderIDPrefix is the prefix of all provider IDs, followed by the domain's UUID in lower case. The UUID is
	// stored before anything is created on a host.
	ProviderIDPrefix = "libvirt:///"
)
