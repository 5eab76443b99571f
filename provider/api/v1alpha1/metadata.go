package v1alpha1

// Finalizers. Each is removed only when everything that its object made is gone.
const (
	// ClusterFinalizer keeps a LibvirtCluster until its load balancer and its claims are gone.
	ClusterFinalizer = "libvirtcluster.infrastructure.cluster.x-k8s.io"

	// MachineFinalizer keeps a LibvirtMachine until its domain, volumes and seed are gone from
	// the host. Undefining the domain comes last, because its metadata is the record of what is left.
	MachineFinalizer = "libvirtmachine.infrastructure.cluster.x-k8s.io"

	// MachinePoolFinalizer keeps a LibvirtMachinePool until all of its LibvirtMachines are gone.
	MachinePoolFinalizer = "libvirtmachinepool.infrastructure.cluster.x-k8s.io"

	// HostFinalizer keeps a LibvirtHost while a LibvirtMachine is bound to it.
	HostFinalizer = "libvirthost.infrastructure.cluster.x-k8s.io"

	// ClusterIdentityFinalizer keeps a LibvirtClusterIdentity while a LibvirtHost refers to it.
	ClusterIdentityFinalizer = "libvirtclusteridentity.infrastructure.cluster.x-k8s.io"
)

// Labels that the provider sets, on Kubernetes objects and nowhere else.
const (
	// HostLabel names, on a LibvirtMachine, the LibvirtHost it is bound to. It is derived from
	// spec.hostName, which is what counts, and is there to select machines by host.
	HostLabel = "libvirt.infrastructure.cluster.x-k8s.io/host"

	// PoolLabel names, on a LibvirtMachine, the LibvirtMachinePool that made it.
	PoolLabel = "libvirt.infrastructure.cluster.x-k8s.io/machine-pool"

	// LoadBalancerLabel says, on a LibvirtMachine, that it is the load balancer of the LibvirtCluster that
	// it names, which is its controller. There is no Machine for it.
	LoadBalancerLabel = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer"
)

// Annotations that the provider sets for the load balancer of a LibvirtCluster.
const (
	// LoadBalancerConfigurationAnnotation on a load balancer says, in JSON, where it listens and which
	// servers are behind it.
	LoadBalancerConfigurationAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer-configuration"

	// LoadBalancerMACAddressAnnotation on a LibvirtCluster is the MAC address that all of its load
	// balancers have, one after the other, so that DHCP gives each the same address. It is there when the
	// endpoint is the address that DHCP gives the load balancer, and is written before one is made.
	LoadBalancerMACAddressAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/load-balancer-mac-address"
)

// Annotations that the provider sets on what belongs to a LibvirtMachinePool.
const (
	// MachinesMadeAnnotation on a LibvirtMachinePool is the number that the last machine of the pool has
	// in its name. It is written before a machine is made, so that no name is used twice: Cluster API
	// finds nodes by their names too.
	MachinesMadeAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/machines-made"

	// MadeFromAnnotation on a LibvirtMachine of a pool is a hash of the template that it is made from,
	// and one of the version and bootstrap data of its MachinePool.
	MadeFromAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/made-from"

	// FailureDomainAnnotation on a LibvirtMachine of a pool is the failure domain that it must be in: one
	// of those of its MachinePool. The Machines that Cluster API makes for a pool name none.
	FailureDomainAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/failure-domain"
)

// Annotations that the provider sets on LibvirtMachines.
const (
	// UpdateStartedAnnotation on a LibvirtMachine says that there is room for what its spec asks for, and
	// that its domain is being shut down, changed and started again for that. Its value is when that began,
	// as RFC 3339 has it. It is written before anything is changed, and removed when the domain runs again.
	UpdateStartedAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/in-place-update-started"
)

// Annotations that the provider sets on LibvirtHosts.
const (
	// HypervisorUUIDAnnotation on a LibvirtHost is the UUID of its hypervisor, as the capabilities of libvirt have it,
	// from the first contact on. When another hypervisor answers, nothing on the host counts as gone; to accept
	// the other one, set the annotation to its UUID. It is an annotation so that `clusterctl move` takes it along.
	HypervisorUUIDAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/hypervisor-uuid"
)

// Annotations that users set to ask for something.
const (
	// HostLostAnnotation on a LibvirtMachine says that its host is gone for good: deleting the
	// machine then gives up on the domain and volumes there. Its value must be the host's name, so
	// that an annotation that was copied by accident does nothing.
	HostLostAnnotation = "libvirt.infrastructure.cluster.x-k8s.io/host-lost"
)

// Provider IDs.
const (
	// ProviderIDPrefix begins the provider ID of every machine; the domain's UUID follows, in
	// lower case with hyphens. The UUID is chosen and stored before anything is made on a host.
	ProviderIDPrefix = "libvirt:///"
)
