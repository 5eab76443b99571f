package v1alpha1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of all kinds, and reasons that any condition may have.
//
// A reason tells people and alerts why a condition is as it is. No controller reads one back to
// decide what to do next.
const (
	// HostUnreachableReason: what the condition is about can't be seen, because the host doesn't answer.
	HostUnreachableReason = "HostUnreachable"

	// InternalErrorReason: an error that isn't described by any other reason; the message and the log have it.
	InternalErrorReason = clusterv1.InternalErrorReason

	// ReadyCondition sums up the other conditions, for the whole life of the object, deletion included.
	// Cluster API mirrors it in the InfrastructureReady condition of the owner.
	ReadyCondition = clusterv1.ReadyCondition

	// ReadyReason: everything that the object stands for is there and works.
	ReadyReason = clusterv1.ReadyReason

	// NotReadyReason: at least one other condition is False; the message says which.
	NotReadyReason = clusterv1.NotReadyReason

	// ReadyUnknownReason: at least one other condition is Unknown and none is False.
	ReadyUnknownReason = clusterv1.ReadyUnknownReason

	// DeletingReason: the object is being deleted; the message says what is left.
	DeletingReason = clusterv1.DeletingReason

	// PausedCondition is True while the object, or its Cluster, is paused.
	PausedCondition = clusterv1.PausedCondition

	// PausedReason: the Cluster has spec.paused, or the object has the annotation cluster.x-k8s.io/paused.
	PausedReason = clusterv1.PausedReason

	// NotPausedReason: neither the Cluster nor the object is paused.
	NotPausedReason = clusterv1.NotPausedReason
)

// Conditions of a LibvirtCluster.
const (
	// HostsAvailableCondition is True when at least one Ready host is selected and allowed.
	HostsAvailableCondition = "HostsAvailable"

	// HostsAvailableReason: there is such a host; status.failureDomains lists where.
	HostsAvailableReason = "HostsAvailable"

	// NoHostsSelectedReason: hostSelector selects no host.
	NoHostsSelectedReason = "NoHostsSelected"

	// NamespaceNotAllowedReason: there are hosts, but their identities don't allow this namespace. Of a
	// LibvirtMachine, too. The message names no hosts.
	NamespaceNotAllowedReason = "NamespaceNotAllowed"

	// NoHostsReadyReason: hosts are selected and allowed, but none of them is Ready.
	NoHostsReadyReason = "NoHostsReady"

	// ControlPlaneEndpointReadyCondition is True when the control plane endpoint is known, and its load
	// balancer runs if the provider runs it.
	ControlPlaneEndpointReadyCondition = "ControlPlaneEndpointReady"

	// ControlPlaneEndpointSetReason: spec.controlPlaneEndpoint has a host and a port.
	ControlPlaneEndpointSetReason = "ControlPlaneEndpointSet"

	// WaitingForControlPlaneEndpointReason: nobody has set the endpoint, and no pool is named to claim it from.
	WaitingForControlPlaneEndpointReason = "WaitingForControlPlaneEndpoint"

	// WaitingForAddressReason: an address is claimed and the IPAM provider hasn't given it.
	WaitingForAddressReason = "WaitingForAddress"

	// ControlPlaneEndpointMismatchReason: the endpoint isn't the one that the Cluster has. Change one of them.
	ControlPlaneEndpointMismatchReason = "ControlPlaneEndpointMismatch"

	// ControlPlaneEndpointTakenReason: another LibvirtCluster has the same endpoint, and had it first.
	ControlPlaneEndpointTakenReason = "ControlPlaneEndpointTaken"

	// LoadBalancerNotRunningReason: the virtual machine with HAProxy isn't there or isn't Ready; the message
	// says what it waits for.
	LoadBalancerNotRunningReason = "LoadBalancerNotRunning"

	// LoadBalancerBeingReplacedReason: the virtual machine with HAProxy is being deleted, and another one is
	// made when it is gone.
	LoadBalancerBeingReplacedReason = "LoadBalancerBeingReplaced"

	// LoadBalancerNameTakenReason: there is a LibvirtMachine of the load balancer's name that isn't this
	// cluster's load balancer.
	LoadBalancerNameTakenReason = "LoadBalancerNameTaken"

	// LoadBalancerAddressChangedReason: DHCP has given the virtual machine with HAProxy another address than
	// the control plane endpoint, which is in every kubeconfig and can't be changed.
	LoadBalancerAddressChangedReason = "LoadBalancerAddressChanged"
)

// Conditions of a LibvirtMachine, one for each phase of its life, in their order.
const (
	// HostBoundCondition is True once the machine is bound to a host: spec.hostName and spec.providerID are set.
	HostBoundCondition = "HostBound"

	// HostBoundReason: the machine is bound to a host.
	HostBoundReason = "HostBound"

	// WaitingForClusterInfrastructureReason: the LibvirtCluster isn't provisioned.
	WaitingForClusterInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason

	// WaitingForBootstrapDataReason: the Machine has no bootstrap data Secret.
	WaitingForBootstrapDataReason = clusterv1.WaitingForBootstrapDataReason

	// WaitingForHostsReason: no host fits so far, and some are being connected to for the first time since the
	// manager began or they were added.
	WaitingForHostsReason = "WaitingForHosts"

	// NoHostFitsReason: no host fits; the message has a reason for each.
	NoHostFitsReason = "NoHostFits"

	// HostNotFoundReason: the LibvirtHost that the machine is bound to doesn't exist.
	HostNotFoundReason = "HostNotFound"

	// MACAddressTakenReason: another machine, or a domain that runs on a host and isn't ours, has a MAC address
	// of the machine; the message says which address.
	MACAddressTakenReason = "MACAddressTaken"

	// ImageReadyCondition is True once the image is in the host's pool, with the right checksum.
	ImageReadyCondition = "ImageReady"

	// ImageReadyReason: the image is there.
	ImageReadyReason = "ImageReady"

	// ImageTransferringReason: the image is being downloaded to the host.
	ImageTransferringReason = "ImageTransferring"

	// ImageQueuedReason: the image waits for other downloads to end.
	ImageQueuedReason = "ImageQueued"

	// ImageTransferFailedReason: the download failed and will be tried again, or what was served isn't an image with the
	// checksum. What the server did is in the manager's log only: a machine's URL may lead to where its user may not.
	ImageTransferFailedReason = "ImageTransferFailed"

	// ImageVolumeNotFoundReason: the pool has no volume of that name.
	ImageVolumeNotFoundReason = "ImageVolumeNotFound"

	// DisksReadyCondition is True once all disks exist.
	DisksReadyCondition = "DisksReady"

	// DisksReadyReason: all disks exist.
	DisksReadyReason = "DisksReady"

	// DiskCreationFailedReason: a disk can't be made; the message says which and why.
	DiskCreationFailedReason = "DiskCreationFailed"

	// DiskCopyingReason: the image is being copied to the root disk, for rootDisk.clone Full, or waits for its turn.
	DiskCopyingReason = "DiskCopying"

	// InstanceReadyCondition is True while the machine's domain exists and runs.
	InstanceReadyCondition = "InstanceReady"

	// InstanceRunningReason: the domain runs.
	InstanceRunningReason = "InstanceRunning"

	// InstanceNotRunningReason: the domain exists and doesn't run; status.instanceState says more.
	InstanceNotRunningReason = "InstanceNotRunning"

	// CrashLoopBackOffReason: the domain stopped several times soon after it was started. The message says when it is
	// started again.
	CrashLoopBackOffReason = "CrashLoopBackOff"

	// InstanceCreationFailedReason: the domain can't be defined or started.
	InstanceCreationFailedReason = "InstanceCreationFailed"

	// NotFreeReason: CPUs or devices of the host that the machine is to have to itself are taken, by domains
	// that aren't those of LibvirtMachines or by machines that were given them at the same moment.
	NotFreeReason = "NotFree"

	// DomainNameTakenReason: a domain on the host that isn't the machine's has its name or UUID. It is left
	// alone; the message names it.
	DomainNameTakenReason = "DomainNameTaken"

	// InstanceNotFoundReason: the machine was provisioned and its domain is gone. It is not made again:
	// replacing a machine is for MachineHealthChecks.
	InstanceNotFoundReason = "InstanceNotFound"

	// AddressesReadyCondition is True once an IP address of the machine is known. Ready doesn't depend on it when the
	// Machine has a node.
	AddressesReadyCondition = "AddressesReady"

	// AddressesReadyReason: the machine has an IP address.
	AddressesReadyReason = "AddressesReady"

	// WaitingForAddressesReason: no claim, lease, guest agent or node has given an address so far.
	WaitingForAddressesReason = "WaitingForAddresses"

	// NoAddressSourceReason: nothing can give an address of the machine. It is provisioned without one.
	NoAddressSourceReason = "NoAddressSource"

	// AddressClaimFailedReason, also of a LibvirtCluster: an address can't be claimed from a pool, or the IPAM provider can't give one; the
	// message says for which IPAddressClaim and why.
	AddressClaimFailedReason = "AddressClaimFailed"

	// NodeProviderIDSetCondition is True once the machine's node has its provider ID, whoever has set it. Ready
	// doesn't depend on it. There is none while the feature NodeProviderIDs is off.
	NodeProviderIDSetCondition = "NodeProviderIDSet"

	// NodeProviderIDSetReason: the node has the machine's provider ID.
	NodeProviderIDSetReason = "NodeProviderIDSet"

	// NodeProviderIDConflictReason: the node has another provider ID, or several nodes say that they are this
	// machine; the message says which.
	NodeProviderIDConflictReason = "NodeProviderIDConflict"

	// SeedRemovedCondition is True once the bootstrap data, with its secrets, is gone from the host.
	SeedRemovedCondition = "SeedRemoved"

	// SeedRemovedReason: the seed is gone.
	SeedRemovedReason = "SeedRemoved"

	// WaitingForNodeReason: the seed is there until the Machine has a node; or the node to give a provider ID to isn't there.
	WaitingForNodeReason = "WaitingForNode"

	// SeedInUseReason: the guest hasn't let go of the seed so far.
	SeedInUseReason = "SeedInUse"

	// LoadBalancerConfiguredCondition is there on the load balancer of a LibvirtCluster only. It is True
	// when the virtual machine was given the configuration that it is to have.
	LoadBalancerConfiguredCondition = "LoadBalancerConfigured"

	// LoadBalancerConfiguredReason: the host has the configuration, and the guest takes it from there.
	LoadBalancerConfiguredReason = "LoadBalancerConfigured"

	// LoadBalancerConfigurationFailedReason: the configuration can't be made or brought to the host; the
	// message says why.
	LoadBalancerConfigurationFailedReason = "LoadBalancerConfigurationFailed"

	// UpdatedInPlaceCondition is there once cpus, memory or disks of a machine have been changed in place.
	// It is True when the machine has what its spec asks for, False when it can't be given that, and
	// Unknown meanwhile. The machine's Ready doesn't depend on it.
	UpdatedInPlaceCondition = "UpdatedInPlace"

	// UpdatedInPlaceReason: the machine has the CPUs, memory and disks that its spec asks for.
	UpdatedInPlaceReason = "UpdatedInPlace"

	// RestartingReason: the guest is being shut down, and its domain is changed and started again then.
	RestartingReason = "Restarting"

	// NoRoomReason, also of ImageReady, DisksReady and InstanceReady: the host has no room for the image, a disk or
	// the memory, or for what the spec asks for more; the message says for what. It is tried again, and new
	// machines go to other hosts meanwhile.
	NoRoomReason = "NoRoom"

	// InPlaceUpdateFailedReason: the domain or a disk can't be changed; the message says why. It is tried again.
	InPlaceUpdateFailedReason = "InPlaceUpdateFailed"
)

// Conditions of a LibvirtMachinePool.
const (
	// ReplicasReadyCondition is True when the pool has as many Ready machines as are asked for.
	ReplicasReadyCondition = "ReplicasReady"

	// ReplicasReadyReason: there are as many Ready machines as are asked for.
	ReplicasReadyReason = "ReplicasReady"

	// ScalingUpReason: machines are being added.
	ScalingUpReason = clusterv1.ScalingUpReason

	// ScalingDownReason: machines are being removed.
	ScalingDownReason = clusterv1.ScalingDownReason

	// MachinesNotReadyReason: there are enough machines and some aren't Ready.
	MachinesNotReadyReason = "MachinesNotReady"

	// UpToDateCondition is True when every machine is made from the template as it is now.
	UpToDateCondition = "UpToDate"

	// UpToDateReason: every machine is made from the template as it is now.
	UpToDateReason = clusterv1.UpToDateReason

	// RollingOutReason: machines made from an older template are being replaced.
	RollingOutReason = clusterv1.RollingOutReason
)

// Conditions of a LibvirtHost.
const (
	// ReachableCondition is True while the host's libvirt daemon answers.
	ReachableCondition = "Reachable"

	// ReachableReason: the daemon answers.
	ReachableReason = "Reachable"

	// ConnectingReason: the host is being connected to for the first time since it was added or changed.
	ConnectingReason = "Connecting"

	// ConnectionFailedReason: no connection; the message says why, without credentials.
	ConnectionFailedReason = "ConnectionFailed"

	// EarlierCredentialsReason: the daemon answers, by a connection that was opened with earlier credentials; the
	// message says why it can't be opened again.
	EarlierCredentialsReason = "EarlierCredentials"

	// OtherHypervisorReason: another hypervisor answers than the one that the host had at its first contact. Nothing
	// on the host counts as gone. The message says how to accept the other one.
	OtherHypervisorReason = "OtherHypervisor"

	// DuplicateHypervisorReason: the hypervisor is that of another LibvirtHost, which was added first.
	DuplicateHypervisorReason = "DuplicateHypervisor"

	// IdentityNotFoundReason: the LibvirtClusterIdentity or its Secret doesn't exist.
	IdentityNotFoundReason = "IdentityNotFound"

	// PoolsReadyCondition is True when all storage pools that spec names are there and active.
	PoolsReadyCondition = "PoolsReady"

	// PoolsReadyReason: all pools are there and active.
	PoolsReadyReason = "PoolsReady"

	// PoolsNotReadyReason: a pool is missing or inactive; the message says which.
	PoolsNotReadyReason = "PoolsNotReady"

	// NetworksReadyCondition is True when all libvirt networks that spec names are there and active, and all
	// bridges and macvtap devices are there. Where the host can't tell whether it has these, the message says
	// so, and they count as there.
	NetworksReadyCondition = "NetworksReady"

	// NetworksReadyReason: all networks are there and active.
	NetworksReadyReason = "NetworksReady"

	// NetworksNotReadyReason: a network is missing or inactive; the message says which.
	NetworksNotReadyReason = "NetworksNotReady"

	// InMaintenanceReason: the host isn't Ready because spec.maintenance takes it out of use.
	InMaintenanceReason = "InMaintenance"

	// OrphansFoundCondition is True when domains or volumes on the host were made for LibvirtMachines that
	// don't exist. It isn't part of Ready: machines can be placed all the same.
	OrphansFoundCondition = "OrphansFound"

	// OrphansFoundReason: there are such; the message names some, and status.orphans has them.
	OrphansFoundReason = "OrphansFound"

	// NoOrphansReason: there are none.
	NoOrphansReason = "NoOrphans"

	// EvacuatedCondition is True when spec.maintenance asks for Evacuate and no machine is left on the
	// host. It isn't there when evacuation isn't asked for, and isn't part of Ready.
	EvacuatedCondition = "Evacuated"

	// EvacuatedReason: no machine is bound to the host.
	EvacuatedReason = "Evacuated"

	// EvacuatingReason: machines are being replaced; the message says which, and what it waits for.
	EvacuatingReason = "Evacuating"

	// EvacuationBlockedReason: none of the machines that are left can be replaced; the message says why.
	EvacuationBlockedReason = "EvacuationBlocked"
)

// Conditions of a LibvirtClusterIdentity. It has Ready and Paused only.
const (
	// SecretNotFoundReason: the Secret doesn't exist.
	SecretNotFoundReason = "SecretNotFound"

	// SecretInvalidReason: the Secret lacks a key, or holds something that can't be read; the message
	// names the key and never its value.
	SecretInvalidReason = "SecretInvalid"

	// AllowedNamespacesInvalidReason: the selector of spec.allowedNamespaces can't be read, and selects no
	// namespace as long as that is so.
	AllowedNamespacesInvalidReason = "AllowedNamespacesInvalid"
)
