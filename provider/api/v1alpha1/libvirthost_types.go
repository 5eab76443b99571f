package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LibvirtHostSpec has the address of a hypervisor, and its resources for machines.
type LibvirtHostSpec struct {
	// uri of the libvirt daemon, in one of these forms. The only supported parameter is socket:
	//
	//	qemu+tls://host[:port]/system
	//	qemu+ssh://user@host[:port]/system[?socket=/path]
	//	qemu+unix:///system[?socket=/path]
	//	test:///default[?socket=/path]
	//
	// Credentials are in identityRef and never in the uri. At most 1024 characters.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(qemu\+(tls|ssh|unix)|test)://[^\s#]*$`
	URI string `json:"uri,omitempty"`

	// identityRef names the LibvirtClusterIdentity with the host's credentials. Required for qemu+tls and qemu+ssh.
	// +optional
	IdentityRef *ClusterIdentityReference `json:"identityRef,omitempty"`

	// failureDomain of the host: hosts that fail together have the same one. Defaults to the host's
	// name. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// storagePools are the libvirt storage pools for images and disks. Defaults to the pool named default for both.
	// +optional
	// +kubebuilder:default={}
	StoragePools HostStoragePools `json:"storagePools,omitempty,omitzero"`

	// networks for machines on this host, from 1 to 64. Defaults to one named default, which is the libvirt network
	// of that name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "default", libvirtNetwork: "default"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Networks []HostNetwork `json:"networks,omitempty"`

	// reserved has the resources that are reserved for the host itself. Defaults to 1 CPU, 2Gi of memory and 10Gi in
	// each storage pool.
	// +optional
	// +kubebuilder:default={}
	Reserved HostReserved `json:"reserved,omitempty,omitzero"`

	// overcommit is how much of the host's resources may be allocated. Defaults to 400 percent of its CPUs and 100
	// percent of its memory.
	// +optional
	// +kubebuilder:default={}
	Overcommit HostOvercommit `json:"overcommit,omitempty,omitzero"`

	// dedicatedCPUs are the numbers of the host's CPUs for machines with cpu.dedicated, for example 4-15,20. Each
	// virtual CPU of such a machine gets one of them exclusively. Other machines run on the other CPUs. Changes don't
	// affect existing machines. Defaults to none. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$`
	DedicatedCPUs string `json:"dedicatedCPUs,omitempty"`

	// hostDevices are the PCI devices for machines with hostDevices, at most 16 models. One machine at a time can use
	// a device, and only if the host itself uses no device of the same IOMMU group. Defaults to none.
	// +optional
	// +listType=map
	// +listMapKey=vendorID
	// +listMapKey=productID
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	HostDevices []LentDevices `json:"hostDevices,omitempty"`

	// consoleLogFolder is the folder on the host for logs of serial consoles, for example /var/log/libvirt/console.
	// Each new machine logs to the file NAME-console.log, where NAME is the name of its domain. The folder must exist
	// and must not belong to a storage pool. virtlogd limits the size of the files. They are deleted with their
	// machines. Defaults to no logs. At most 512 characters.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9_+:@-][A-Za-z0-9_.+:@-]*)+$`
	ConsoleLogFolder string `json:"consoleLogFolder,omitempty"`

	// maintenance takes the host out of use.
	// +optional
	Maintenance *HostMaintenance `json:"maintenance,omitempty"`
}

// ClusterIdentityReference names a LibvirtClusterIdentity.
type ClusterIdentityReference struct {
	// name of the LibvirtClusterIdentity. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`
}

// HostStoragePools are the libvirt storage pools of a host for images and disks.
type HostStoragePools struct {
	// images is the pool for images of root disks. Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Images string `json:"images,omitempty"`

	// disks are the pools for disks of machines, from 1 to 16. The first one is for disks without a pool. Defaults to
	// the pool named default.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={"default"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Disks []string `json:"disks,omitempty"`
}

// HostNetwork maps the name of a network to a network of the host.
// +kubebuilder:validation:XValidation:rule="[has(self.libvirtNetwork), has(self.bridge), has(self.macvtapDevice)].filter(x, x).size() == 1",message="set exactly one of libvirtNetwork, bridge and macvtapDevice"
// +kubebuilder:validation:XValidation:rule="!has(self.bridgeType) || has(self.bridge)",message="bridgeType needs bridge"
// +kubebuilder:validation:XValidation:rule="!has(self.vlan) || has(self.bridge)",message="vlan needs bridge: the VLAN of a libvirtNetwork is set in that network, and a macvtapDevice can be a VLAN device such as eno1.42"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || !has(self.macvtapDevice)",message="mtu can't be set with macvtapDevice: machines have the MTU of that device"
// +kubebuilder:validation:XValidation:rule="!has(self.isolated) || !self.isolated || !has(self.macvtapDevice) && (!has(self.bridgeType) || self.bridgeType == 'Linux')",message="isolated needs a Linux bridge or a libvirtNetwork"
// +kubebuilder:validation:XValidation:rule="!has(self.filter) || !has(self.macvtapDevice) && (!has(self.bridgeType) || self.bridgeType == 'Linux')",message="filter needs a Linux bridge or a libvirtNetwork: libvirt's filters see nothing of an Open vSwitch or of macvtap"
type HostNetwork struct {
	// name of the network, as used in machines. It must stand for the same network on all hosts of a cluster. Lower
	// case letters, digits and '-', at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// libvirtNetwork is the name of a libvirt network on the host. At most 255 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	LibvirtNetwork string `json:"libvirtNetwork,omitempty"`

	// bridge is a bridge device on the host, for example br0. At most 15 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	Bridge string `json:"bridge,omitempty"`

	// macvtapDevice is a network device on the host for macvtap in bridge mode, for example enp1s0. The host itself
	// can't reach machines on it. At most 15 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	MacvtapDevice string `json:"macvtapDevice,omitempty"`

	// bridgeType is the type of bridge: Linux or OpenVSwitch. Only allowed with bridge. Defaults to Linux.
	// +optional
	BridgeType BridgeType `json:"bridgeType,omitempty"`

	// vlan is the VLAN ID of the machines, from 1 to 4094, which guests can't change. Only allowed with bridge. A
	// Linux bridge needs libvirt 11.0.0 and VLAN filtering. Defaults to untagged traffic.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// mtu of the machines' interfaces, in bytes, from 1280 to 65521. The bridge and its ports need at least the same
	// MTU. Not allowed with macvtapDevice. Defaults to the MTU of the bridge.
	// +optional
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=65521
	MTU int32 `json:"mtu,omitempty"`

	// isolated prevents traffic between machines of one host on this network. They still reach the host and its
	// uplink. Needs a Linux bridge, or a libvirtNetwork on one, and libvirt 6.1.0. Defaults to false.
	// +optional
	Isolated *bool `json:"isolated,omitempty"`

	// filter is the libvirt network filter for the traffic of machines, for example against spoofed addresses. Needs
	// a Linux bridge or a libvirtNetwork on one. Defaults to no filter.
	// +optional
	Filter *NetworkFilter `json:"filter,omitempty"`

	// allowedNamespaces selects the namespaces whose machines can use the network. Defaults to all namespaces that
	// may use the host.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
}

// BridgeType is the type of a bridge.
// +kubebuilder:validation:Enum=Linux;OpenVSwitch
type BridgeType string

// The bridge types.
const (
	// BridgeTypeLinux is a bridge of the Linux kernel.
	BridgeTypeLinux BridgeType = "Linux"
	// BridgeTypeOpenVSwitch is a bridge of Open vSwitch.
	BridgeTypeOpenVSwitch BridgeType = "OpenVSwitch"
)

// NetworkFilter is a libvirt network filter (https://libvirt.org/formatnwfilter.html). Its parameters IP and IPV6 are
// the interface's addresses from pools.
type NetworkFilter struct {
	// name of the filter on the host, for example clean-traffic. At most 255 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_.-]*$`
	Name string `json:"name,omitempty"`

	// parameters of the filter for all machines, from 1 to 32, for example CTRL_IP_LEARNING and DHCPSERVER. Repeat a
	// name to give it several values. MAC, IP and IPV6 are set for each machine and not allowed here.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Parameters []FilterParameter `json:"parameters,omitempty"`
}

// FilterParameter is a parameter of a network filter.
type FilterParameter struct {
	// name of the parameter: letters, digits and '_', at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]+$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['MAC', 'IP', 'IPV6'])",message="MAC, IP and IPV6 are those of each machine, and can't be set"
	Name string `json:"name,omitempty"`

	// value of the parameter: letters, digits and '_.:', at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.:]+$`
	Value string `json:"value,omitempty"`
}

// HostReserved has the resources that are reserved for a host itself.
type HostReserved struct {
	// cpus is the number of reserved CPUs, from 0 to 1024. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	CPUs *int32 `json:"cpus,omitempty"`

	// memory is the reserved memory, at most 16Ti. Defaults to 2Gi.
	// +optional
	// +kubebuilder:default="2Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0",message="must be at least 0 and at most 16Ti"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// storage is the reserved space in each storage pool, at most 64Ti. Defaults to 10Gi.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="must be at least 0 and at most 64Ti"
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// HostOvercommit says how much of a host's resources may be allocated to machines.
type HostOvercommit struct {
	// cpuPercent is how many virtual CPUs may be allocated, in percent of the CPUs that aren't
	// reserved, from 100 to 1600. Defaults to 400.
	// +optional
	// +kubebuilder:default=400
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=1600
	CPUPercent int32 `json:"cpuPercent,omitempty"`

	// memoryPercent is how much memory may be allocated, in percent of the memory that isn't reserved,
	// from 100 to 400. More than 100 needs swap or page merging on the host. Defaults to 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=400
	MemoryPercent int32 `json:"memoryPercent,omitempty"`
}

// MaintenanceMode says how a host is taken out of use.
// +kubebuilder:validation:Enum=Cordon;Evacuate
type MaintenanceMode string

// The maintenance modes.
const (
	// MaintenanceCordon places no more machines on the host and keeps existing ones.
	MaintenanceCordon MaintenanceMode = "Cordon"
	// MaintenanceEvacuate places no more machines on the host, and has MachineHealthChecks replace existing ones, one
	// by one.
	MaintenanceEvacuate MaintenanceMode = "Evacuate"
)

// HostMaintenance takes a host out of use.
type HostMaintenance struct {
	// mode is Cordon or Evacuate. Defaults to Cordon.
	// +optional
	// +kubebuilder:default=Cordon
	Mode MaintenanceMode `json:"mode,omitempty"`

	// reason is included in the message of the host's Ready condition. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// HostResources counts CPUs, memory and storage.
type HostResources struct {
	// cpus is a number of CPUs.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CPUs *int32 `json:"cpus,omitempty"`

	// memory is an amount of memory, in bytes or with a suffix such as Gi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	Memory *resource.Quantity `json:"memory,omitempty"`

	// storage is the total size of the storage pools for disks, in bytes or with a suffix such as Gi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// The features of hosts, as listed in status.features. Machines ask for them by these names.
const (
	// HostFeatureKVM: the host runs guests with hardware virtualization. Without it they are emulated.
	HostFeatureKVM = "kvm"
	// HostFeatureBIOS: the host has SeaBIOS for guests.
	HostFeatureBIOS = "bios"
	// HostFeatureUEFI: the host has UEFI firmware for guests.
	HostFeatureUEFI = "uefi"
	// HostFeatureSecureBoot: the host has UEFI firmware that can refuse unsigned boot loaders.
	HostFeatureSecureBoot = "secure-boot"
	// HostFeatureTPM: the host can emulate a TPM 2.0.
	HostFeatureTPM = "tpm"
	// HostFeatureHugepagesPrefix, followed by a page size: the host has huge pages of this size.
	HostFeatureHugepagesPrefix = "hugepages-"
)

// LibvirtHostStatus is the observed state of a host.
type LibvirtHostStatus struct {
	// conditions of the host, at most 32: Ready, Paused, Reachable, PoolsReady, NetworksReady,
	// OrphansFound, and Evacuated while spec.maintenance asks for it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity has the resources of the host.
	// +optional
	Capacity HostResources `json:"capacity,omitempty,omitzero"`

	// allocated has the resources of machines and of foreign domains.
	// +optional
	Allocated HostResources `json:"allocated,omitempty,omitzero"`

	// arch is the architecture of the host: amd64, arm64, s390x or ppc64le.
	// +optional
	Arch Architecture `json:"arch,omitempty"`

	// features of the host that machines can ask for, for example kvm, uefi, secure-boot, tpm, hugepages-2Mi. At most
	// 64, each of at most 63 characters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Features []string `json:"features,omitempty"`

	// libvirtVersion is the version of the libvirt daemon, for example 9.0.0. At most 63 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	LibvirtVersion string `json:"libvirtVersion,omitempty"`

	// machines is the number of LibvirtMachines that are bound to the host.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// dedicatedCPUs counts the CPUs of spec.dedicatedCPUs.
	// +optional
	DedicatedCPUs *HostDedicatedCPUs `json:"dedicatedCPUs,omitempty"`

	// hostDevices counts the devices of each model in spec.hostDevices. At most 16.
	// +optional
	// +listType=map
	// +listMapKey=vendorID
	// +listMapKey=productID
	// +kubebuilder:validation:MaxItems=16
	HostDevices []HostDevices `json:"hostDevices,omitempty"`

	// orphans are domains and volumes of LibvirtMachines that don't exist, by the UUID of the machine. At most 64:
	// the condition OrphansFound has the total number.
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=64
	Orphans []HostOrphan `json:"orphans,omitempty"`

	// evacuation is the progress of an evacuation that spec.maintenance asks for.
	// +optional
	Evacuation *HostEvacuation `json:"evacuation,omitempty"`
}

// HostOrphan is the domain or the volumes of a LibvirtMachine that doesn't exist.
type HostOrphan struct {
	// uuid of the machine, which is the prefix of the names of its volumes.
	// +required
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	UUID string `json:"uuid,omitempty"`

	// domain is the name of the domain. Empty when only volumes are left. At most 255 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Domain string `json:"domain,omitempty"`

	// machine is the LibvirtMachine in the domain's metadata, as namespace/name. Empty when only volumes are left. At
	// most 317 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Machine string `json:"machine,omitempty"`

	// volumes is the number of remaining volumes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Volumes *int32 `json:"volumes,omitempty"`

	// since is the time when the LibvirtMachine was first found missing.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// keptBecause is the reason why the orphan isn't deleted now. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	KeptBecause string `json:"keptBecause,omitempty"`
}

// HostEvacuation is the progress of an evacuation.
type HostEvacuation struct {
	// machines is the number of LibvirtMachines on the host at the beginning of the evacuation.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// current is the Machine that is being replaced. The next one follows when this one is deleted and its owner has
	// a replacement.
	// +optional
	Current *EvacuatedMachine `json:"current,omitempty"`
}

// EvacuatedMachine is a Machine that is being replaced on another host.
type EvacuatedMachine struct {
	// namespace of the Machine. At most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name of the Machine. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// uid of the Machine, which tells it from a new one with the same name. At most 64 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// ownerKind is the kind of the Machine's owner, which replaces it, for example MachineSet. At most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	OwnerKind string `json:"ownerKind,omitempty"`

	// ownerName is the name of the Machine's owner, in the same namespace. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	OwnerName string `json:"ownerName,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirthosts,shortName=lvh,scope=Cluster,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether machines can be placed on the host"
// +kubebuilder:printcolumn:name="Reachable",type="string",JSONPath=".status.conditions[?(@.type==\"Reachable\")].status",description="Whether the libvirt daemon answers"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.machines",description="Number of machines bound to the host"
// +kubebuilder:printcolumn:name="Maintenance",type="string",JSONPath=".spec.maintenance.mode",description="How far the host is taken out of use"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the host was added"
// +kubebuilder:printcolumn:name="URI",type="string",JSONPath=".spec.uri",description="URI of the libvirt daemon",priority=1
// +kubebuilder:printcolumn:name="Failure Domain",type="string",JSONPath=".spec.failureDomain",description="Failure domain of the host",priority=1
// +kubebuilder:printcolumn:name="Arch",type="string",JSONPath=".status.arch",description="Architecture of the host",priority=1
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".status.capacity.cpus",description="Number of CPUs of the host",priority=1
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".status.capacity.memory",description="Memory of the host",priority=1
// +kubebuilder:printcolumn:name="Used CPUs",type="integer",JSONPath=".status.allocated.cpus",description="Virtual CPUs of machines and of foreign domains",priority=1
// +kubebuilder:printcolumn:name="Used Memory",type="string",JSONPath=".status.allocated.memory",description="Memory of machines and of foreign domains",priority=1
// +kubebuilder:printcolumn:name="Libvirt",type="string",JSONPath=".status.libvirtVersion",description="Version of the libvirt daemon",priority=1
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",description="What is in the way while it is not ready",priority=1

// LibvirtHost is a hypervisor for machines. Clusters share hosts.
type LibvirtHost struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the address of the host, and its resources for machines.
	// +required
	Spec LibvirtHostSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the host.
	// +optional
	Status LibvirtHostStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the host.
func (h *LibvirtHost) GetConditions() []metav1.Condition {
	return h.Status.Conditions
}

// SetConditions replaces the conditions of the host.
func (h *LibvirtHost) SetConditions(conditions []metav1.Condition) {
	h.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// LibvirtHostList is a list of LibvirtHosts.
type LibvirtHostList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the hosts.
	Items []LibvirtHost `json:"items"`
}
