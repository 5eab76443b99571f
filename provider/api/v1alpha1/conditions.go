package v1alpha1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of all kinds, and reasons that any condition may have.
//
// A reason explains a condition to people and alerts. No controller decides by a reason.
const (
	// HostUnreachableReason: the state is unknown, because the host doesn't answer.
	HostUnreachableReason = "HostUnreachable"

	// InternalErrorReason: an error without a reason of its own; it is in the message and the log.
	InternalErrorReason = clusterv1.InternalErrorReason

	// ReadyCondition sums up the other conditions, for the whole life of the object, deletion included.
	// Cluster API mirrors it in the InfrastructureReady condition of the owner.
	ReadyCondition = clusterv1.ReadyCondition

	// ReadyReason: the object is in working order.
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

	// HostsAvailableReason: such a host exists; status.failureDomains lists the failure domains.
	HostsAvailableReason = "HostsAvailable"

	// NoHostsSelectedReason: hostSelector selects no host.
	NoHostsSelectedReason = "NoHostsSelected"

	// NamespaceNotAllowedReason: hosts exist, but their identities don't allow this namespace. The message names no
	// hosts. Also used on LibvirtMachines.
	NamespaceNotAllowedReason = "NamespaceNotAllowed"

	// NoHostsReadyReason: hosts are selected and allowed, but none of them is Ready.
	NoHostsReadyReason = "NoHostsReady"

	// ControlPlaneEndpointReadyCondition is True when the control plane endpoint is set and the load balancer, if
	// any, runs.
	ControlPlaneEndpointReadyCondition = "ControlPlaneEndpointReady"

	// ControlPlaneEndpointSetReason: spec.controlPlaneEndpoint has a host and a port.
	ControlPlaneEndpointSetReason = "ControlPlaneEndpointSet"

	// WaitingForControlPlaneEndpointReason: the endpoint isn't set, and there is no pool to claim it from.
	WaitingForControlPlaneEndpointReason = "WaitingForControlPlaneEndpoint"

	// WaitingForAddressReason: the IPAM provider hasn't allocated the claimed address.
	WaitingForAddressReason = "WaitingForAddress"

	// ControlPlaneEndpointMismatchReason: the endpoint differs from that of the Cluster. Change one of them.
	ControlPlaneEndpointMismatchReason = "ControlPlaneEndpointMismatch"

	// ControlPlaneEndpointTakenReason: another LibvirtCluster had the same endpoint first.
	ControlPlaneEndpointTakenReason = "ControlPlaneEndpointTaken"

	// LoadBalancerNotRunningReason: the HAProxy machine is missing or not Ready; the message says why.
	LoadBalancerNotRunningReason = "LoadBalancerNotRunning"

	// LoadBalancerBeingReplacedReason: the HAProxy machine is being deleted; a new one is created afterwards.
	LoadBalancerBeingReplacedReason = "LoadBalancerBeingReplaced"

	// LoadBalancerNameTakenReason: a LibvirtMachine that isn't the load balancer has the load balancer's name.
	LoadBalancerNameTakenReason = "LoadBalancerNameTaken"

	// LoadBalancerAddressChangedReason: DHCP gave the HAProxy machine an address other than the control plane
	// endpoint, which can't be changed.
	LoadBalancerAddressChangedReason = "LoadBalancerAddressChanged"
)

// Conditions of a LibvirtMachine, one for each phase of its life, in their order.
const (
	// HostBoundCondition is True once spec.hostName and spec.providerID are set.
	HostBoundCondition = "HostBound"

	// HostBoundReason: the machine is bound to a host.
	HostBoundReason = "HostBound"

	// WaitingForClusterInfrastructureReason: the LibvirtCluster isn't provisioned.
	WaitingForClusterInfrastructureReason = clusterv1.WaitingForClusterInfrastructureReadyReason

	// WaitingForBootstrapDataReason: the Machine has no bootstrap data Secret.
	WaitingForBootstrapDataReason = clusterv1.WaitingForBootstrapDataReason

	// WaitingForHostsReason: no host fits so far, and the first connection to some hosts is still being opened.
	WaitingForHostsReason = "WaitingForHosts"

	// NoHostFitsReason: no host fits; the message has the reason for each host.
	NoHostFitsReason = "NoHostFits"

	// HostNotFoundReason: the LibvirtHost that the machine is bound to doesn't exist.
	HostNotFoundReason = "HostNotFound"

	// MACAddressTakenReason: another machine or a running foreign domain has a MAC address of the machine; the
	// message names it.
	MACAddressTakenReason = "MACAddressTaken"

	// ImageReadyCondition is True once the image, with the right checksum, is in the host's pool.
	ImageReadyCondition = "ImageReady"

	// ImageReadyReason: the image is on the host.
	ImageReadyReason = "ImageReady"

	// ImageTransferringReason: the image is being downloaded to the host.
	ImageTransferringReason = "ImageTransferring"

	// ImageQueuedReason: the image waits for other downloads to end.
	ImageQueuedReason = "ImageQueued"

	// ImageTransferFailedReason: the download failed and is retried, or the served file isn't an image with the
	// checksum. Details are in the manager's log only: the URL may lead to a server that the user has no access to.
	ImageTransferFailedReason = "ImageTransferFailed"

	// ImageVolumeNotFoundReason: the pool has no volume of that name.
	ImageVolumeNotFoundReason = "ImageVolumeNotFound"

	// DisksReadyCondition is True once all disks exist.
	DisksReadyCondition = "DisksReady"

	// DisksReadyReason: all disks exist.
	DisksReadyReason = "DisksReady"

	// DiskCreationFailedReason: a disk can't be created; the message says which and why.
	DiskCreationFailedReason = "DiskCreationFailed"

	// DiskCopyingReason: the image is being copied to the root disk, for rootDisk.clone Full, or waits for its turn.
	DiskCopyingReason = "DiskCopying"

	// InstanceReadyCondition is True while the machine's domain exists and runs.
	InstanceReadyCondition = "InstanceReady"

	// InstanceRunningReason: the domain runs.
	InstanceRunningReason = "InstanceRunning"

	// InstanceNotRunningReason: the domain exists and doesn't run; status.instanceState says more.
	InstanceNotRunningReason = "InstanceNotRunning"

	// CrashLoopBackOffReason: the domain stopped repeatedly soon after its start; the message has the time of the
	// next start.
	CrashLoopBackOffReason = "CrashLoopBackOff"

	// InstanceCreationFailedReason: the domain can't be defined or started.
	InstanceCreationFailedReason = "InstanceCreationFailed"

	// NotFreeReason: exclusive CPUs or devices are in use by foreign domains, or were given to other machines at the
	// same time.
	NotFreeReason = "NotFree"

	// DomainNameTakenReason: a foreign domain on the host has the machine's name or UUID. It is not touched; the
	// message names it.
	DomainNameTakenReason = "DomainNameTaken"

	// InstanceNotFoundReason: the domain of a provisioned machine is missing. It isn't created again:
	// MachineHealthChecks replace machines.
	InstanceNotFoundReason = "InstanceNotFound"

	// AddressesReadyCondition is True once an IP address of the machine is known. It isn't part of Ready once the
	// Machine has a node.
	AddressesReadyCondition = "AddressesReady"

	// AddressesReadyReason: the machine has an IP address.
	AddressesReadyReason = "AddressesReady"

	// WaitingForAddressesReason: no claim, lease, guest agent or node has an address so far.
	WaitingForAddressesReason = "WaitingForAddresses"

	// NoAddressSourceReason: the machine has no source of addresses and is provisioned without one.
	NoAddressSourceReason = "NoAddressSource"

	// AddressClaimFailedReason: an IPAddressClaim failed; the message says which and why. Also used on
	// LibvirtClusters.
	AddressClaimFailedReason = "AddressClaimFailed"

	// NodeProviderIDSetCondition is True once the machine's node has its provider ID. It isn't part of Ready, and is
	// missing while the feature NodeProviderIDs is off.
	NodeProviderIDSetCondition = "NodeProviderIDSet"

	// NodeProviderIDSetReason: the node has the machine's provider ID.
	NodeProviderIDSetReason = "NodeProviderIDSet"

	// NodeProviderIDConflictReason: the node has another provider ID, or several nodes have the machine's system
	// UUID; the message names them.
	NodeProviderIDConflictReason = "NodeProviderIDConflict"

	// SeedRemovedCondition is True once the bootstrap data, with its secrets, is removed from the host.
	SeedRemovedCondition = "SeedRemoved"

	// SeedRemovedReason: the seed is removed.
	SeedRemovedReason = "SeedRemoved"

	// WaitingForNodeReason: the Machine has no node yet; the seed stays until then.
	WaitingForNodeReason = "WaitingForNode"

	// SeedInUseReason: the guest hasn't released the seed so far.
	SeedInUseReason = "SeedInUse"

	// LoadBalancerConfiguredCondition, on the load balancer of a LibvirtCluster only, is True when its configuration
	// is on the host.
	LoadBalancerConfiguredCondition = "LoadBalancerConfigured"

	// LoadBalancerConfiguredReason: the configuration is on the host, from where the guest reads it.
	LoadBalancerConfiguredReason = "LoadBalancerConfigured"

	// LoadBalancerConfigurationFailedReason: the configuration can't be created or uploaded; the message says why.
	LoadBalancerConfigurationFailedReason = "LoadBalancerConfigurationFailed"

	// UpdatedInPlaceCondition exists once cpus, memory or disks were changed in place. It is True when the machine
	// matches its spec, False when the update failed, and Unknown during the update. It isn't part of Ready.
	UpdatedInPlaceCondition = "UpdatedInPlace"

	// UpdatedInPlaceReason: the CPUs, memory and disks of the machine match its spec.
	UpdatedInPlaceReason = "UpdatedInPlace"

	// RestartingReason: the guest is shutting down; its domain is then changed and started again.
	RestartingReason = "Restarting"

	// NoRoomReason: the host has no room for the image, a disk, the memory or an update in place; the message says
	// which. It is retried, and new machines are placed on other hosts. Also used in ImageReady, DisksReady and
	// InstanceReady.
	NoRoomReason = "NoRoom"

	// InPlaceUpdateFailedReason: the domain or a disk can't be changed; the message says why. It is retried.
	InPlaceUpdateFailedReason = "InPlaceUpdateFailed"
)

// Conditions of a LibvirtMachinePool.
const (
	// ReplicasReadyCondition is True when the pool has the desired number of Ready machines.
	ReplicasReadyCondition = "ReplicasReady"

	// ReplicasReadyReason: the pool has the desired number of Ready machines.
	ReplicasReadyReason = "ReplicasReady"

	// ScalingUpReason: machines are being added.
	ScalingUpReason = clusterv1.ScalingUpReason

	// ScalingDownReason: machines are being removed.
	ScalingDownReason = clusterv1.ScalingDownReason

	// MachinesNotReadyReason: there are enough machines, but some aren't Ready.
	MachinesNotReadyReason = "MachinesNotReady"

	// UpToDateCondition is True when every machine matches the current template.
	UpToDateCondition = "UpToDate"

	// UpToDateReason: every machine matches the current template.
	UpToDateReason = clusterv1.UpToDateReason

	// RollingOutReason: machines with an older template are being replaced.
	RollingOutReason = clusterv1.RollingOutReason
)

// Conditions of a LibvirtHost.
const (
	// ReachableCondition is True while the host's libvirt daemon answers.
	ReachableCondition = "Reachable"

	// ReachableReason: the daemon answers.
	ReachableReason = "Reachable"

	// ConnectingReason: the first connection since the host was added or changed is being opened.
	ConnectingReason = "Connecting"

	// ConnectionFailedReason: the connection failed; the message says why, without credentials.
	ConnectionFailedReason = "ConnectionFailed"

	// EarlierCredentialsReason: the open connection uses earlier credentials; the message says why the current ones
	// fail.
	EarlierCredentialsReason = "EarlierCredentials"

	// OtherHypervisorReason: a hypervisor answers that isn't the one of the first contact. Nothing on the host counts
	// as missing. The message says how to accept the new one.
	OtherHypervisorReason = "OtherHypervisor"

	// DuplicateHypervisorReason: another LibvirtHost, which was added first, has the same hypervisor.
	DuplicateHypervisorReason = "DuplicateHypervisor"

	// IdentityNotFoundReason: the LibvirtClusterIdentity or its Secret doesn't exist.
	IdentityNotFoundReason = "IdentityNotFound"

	// PoolsReadyCondition is True when all storage pools in spec exist and are active.
	PoolsReadyCondition = "PoolsReady"

	// PoolsReadyReason: all pools exist and are active.
	PoolsReadyReason = "PoolsReady"

	// PoolsNotReadyReason: a pool is missing or inactive; the message says which.
	PoolsNotReadyReason = "PoolsNotReady"

	// NetworksReadyCondition is True when all libvirt networks in spec are active, and all bridges and macvtap
	// devices exist. If the host can't list devices, the message says so, and they count as existing.
	NetworksReadyCondition = "NetworksReady"

	// NetworksReadyReason: all networks exist and are active.
	NetworksReadyReason = "NetworksReady"

	// NetworksNotReadyReason: a network is missing or inactive; the message says which.
	NetworksNotReadyReason = "NetworksNotReady"

	// InMaintenanceReason: the host isn't Ready because spec.maintenance takes it out of use.
	InMaintenanceReason = "InMaintenance"

	// OrphansFoundCondition is True when the host has domains or volumes of LibvirtMachines that don't exist. It
	// isn't part of Ready.
	OrphansFoundCondition = "OrphansFound"

	// OrphansFoundReason: orphans exist; the message names some, and status.orphans lists them.
	OrphansFoundReason = "OrphansFound"

	// NoOrphansReason: no orphans exist.
	NoOrphansReason = "NoOrphans"

	// EvacuatedCondition is True when spec.maintenance.mode is Evacuate and no machine is left on the host. It is
	// missing otherwise, and isn't part of Ready.
	EvacuatedCondition = "Evacuated"

	// EvacuatedReason: no machine is bound to the host.
	EvacuatedReason = "Evacuated"

	// EvacuatingReason: machines are being replaced; the message says which, and what the evacuation waits for.
	EvacuatingReason = "Evacuating"

	// EvacuationBlockedReason: no remaining machine can be replaced; the message says why.
	EvacuationBlockedReason = "EvacuationBlocked"
)

// Conditions of a LibvirtClusterIdentity. It has Ready and Paused only.
const (
	// SecretNotFoundReason: the Secret doesn't exist.
	SecretNotFoundReason = "SecretNotFound"

	// SecretInvalidReason: a key of the Secret is missing or invalid; the message names the key and never its value.
	SecretInvalidReason = "SecretInvalid"

	// AllowedNamespacesInvalidReason: the selector of spec.allowedNamespaces is invalid and selects no namespace.
	AllowedNamespacesInvalidReason = "AllowedNamespacesInvalid"
)
