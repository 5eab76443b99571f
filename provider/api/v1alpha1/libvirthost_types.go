package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LibvirtHostSpec says how a hypervisor is reached, and which of its resources machines may use.
type LibvirtHostSpec struct {
	// uri of the libvirt daemon, in one of these forms; only the parameter socket is understood:
	//
	//	qemu+tls://host[:port]/system
	//	qemu+ssh://user@host[:port]/system[?socket=/path]
	//	qemu+unix:///system[?socket=/path]
	//	test:///default[?socket=/path]
	//
	// Credentials come from identityRef and never stand in the uri. At most 1024 characters.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(qemu\+(tls|ssh|unix)|test)://[^\s#]*$`
	URI string `json:"uri,omitempty"`

	// identityRef names the LibvirtClusterIdentity to reach the host with. Needed for qemu+tls and qemu+ssh.
	// +optional
	IdentityRef *ClusterIdentityReference `json:"identityRef,omitempty"`

	// failureDomain of the host: hosts that fail together have the same one. Defaults to the host's
	// name. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// storagePools are the libvirt storage pools to use. Defaults to the pool called default for everything.
	// +optional
	// +kubebuilder:default={}
	StoragePools HostStoragePools `json:"storagePools,omitempty,omitzero"`

	// networks that machines on this host can be on, from 1 to 64. Defaults to one called default,
	// which is libvirt's network of that name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:default={{name: "default", libvirtNetwork: "default"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Networks []HostNetwork `json:"networks,omitempty"`

	// reserved is what is kept back for the host itself. Defaults to 1 CPU, 2Gi of memory and 10Gi in
	// each storage pool.
	// +optional
	// +kubebuilder:default={}
	Reserved HostReserved `json:"reserved,omitempty,omitzero"`

	// overcommit says how much more than it has the host may promise. Defaults to 400 percent of its
	// CPUs and 100 percent of its memory.
	// +optional
	// +kubebuilder:default={}
	Overcommit HostOvercommit `json:"overcommit,omitempty,omitzero"`

	// dedicatedCPUs are the CPUs of the host that are kept for machines with cpu.dedicated, by their
	// numbers: for example 4-15,20. Each of those machines' virtual CPUs has one of them to itself, and all
	// else of this provider's runs on the others. Changing them doesn't move machines that are there. No
	// CPU is dedicated when left out. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$`
	DedicatedCPUs string `json:"dedicatedCPUs,omitempty"`

	// hostDevices are the PCI devices of the host that are lent to machines with hostDevices, by model. A
	// device is lent to one machine at a time, and only if it is in an IOMMU group in which the host itself
	// uses nothing. No device is lent when left out. At most 16 models.
	// +optional
	// +listType=map
	// +listMapKey=vendorID
	// +listMapKey=productID
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	HostDevices []LentDevices `json:"hostDevices,omitempty"`

	// consoleLogFolder is a folder of the host in which libvirt keeps what guests write to their serial
	// console, for example /var/log/libvirt/console: the file NAME-console.log for each machine that is made
	// from then on, where NAME is that of its domain. The folder has to exist and must not be that of a
	// storage pool. virtlogd limits the size of the files. They are deleted with their machines. Nothing
	// is kept when left out. At most 512 characters.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9_+:@-][A-Za-z0-9_.+:@-]*)+$`
	ConsoleLogFolder string `json:"consoleLogFolder,omitempty"`

	// maintenance takes the host out of use. In use when left out.
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

// HostStoragePools are the libvirt storage pools of a host that may be used.
type HostStoragePools struct {
	// images is the pool for images, from which root disks are made. Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Images string `json:"images,omitempty"`

	// disks are the pools for disks of machines, from 1 to 16. The first is for disks that don't ask
	// for a pool. Defaults to the pool called default.
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

// HostNetwork maps the name that machines use to what a host has.
// +kubebuilder:validation:XValidation:rule="[has(self.libvirtNetwork), has(self.bridge), has(self.macvtapDevice)].filter(x, x).size() == 1",message="set exactly one of libvirtNetwork, bridge and macvtapDevice"
// +kubebuilder:validation:XValidation:rule="!has(self.bridgeType) || has(self.bridge)",message="bridgeType needs bridge"
// +kubebuilder:validation:XValidation:rule="!has(self.vlan) || has(self.bridge)",message="vlan needs bridge: the VLAN of a libvirtNetwork is set in that network, and a macvtapDevice can be a VLAN device such as eno1.42"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || !has(self.macvtapDevice)",message="mtu can't be set with macvtapDevice: machines have the MTU of that device"
// +kubebuilder:validation:XValidation:rule="!has(self.isolated) || !self.isolated || !has(self.macvtapDevice) && (!has(self.bridgeType) || self.bridgeType == 'Linux')",message="isolated needs a Linux bridge or a libvirtNetwork"
// +kubebuilder:validation:XValidation:rule="!has(self.filter) || !has(self.macvtapDevice) && (!has(self.bridgeType) || self.bridgeType == 'Linux')",message="filter needs a Linux bridge or a libvirtNetwork: libvirt's filters see nothing of an Open vSwitch or of macvtap"
type HostNetwork struct {
	// name of the network, as machines use it. Hosts that give the same name to what isn't the same
	// network split a cluster in two. Lower case letters, digits and '-', at most 63 characters.
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

	// macvtapDevice is a network device on the host to put macvtap on, in bridge mode, for example
	// enp1s0. The host itself can't reach such machines. At most 15 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`
	MacvtapDevice string `json:"macvtapDevice,omitempty"`

	// bridgeType is what bridge is: Linux or OpenVSwitch. Only with bridge. A Linux bridge when left out.
	// +optional
	BridgeType BridgeType `json:"bridgeType,omitempty"`

	// vlan is the number of the VLAN that machines are in, which their guests can't leave, from 1 to 4094. Only
	// with bridge. A Linux bridge needs libvirt 11.0.0, and its VLAN filtering has to be on. Machines send and
	// receive what the bridge does without a VLAN when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`

	// mtu of the machines' interfaces, in bytes, from 1280 to 65521. The bridge and all that is on it need at
	// least that. Not with macvtapDevice. Defaults to what libvirt chooses, the MTU of the bridge.
	// +optional
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=65521
	MTU int32 `json:"mtu,omitempty"`

	// isolated keeps machines on a host from reaching each other by this network: they reach what isn't isolated,
	// such as the host and what is behind its uplink. Needs a Linux bridge or a libvirtNetwork on one, and libvirt
	// 6.1.0. Machines reach each other when left out.
	// +optional
	Isolated *bool `json:"isolated,omitempty"`

	// filter is the libvirt network filter for what machines send and receive, for example one against spoofed
	// addresses. Needs a Linux bridge or a libvirtNetwork on one. Nothing is filtered when left out.
	// +optional
	Filter *NetworkFilter `json:"filter,omitempty"`

	// allowedNamespaces are those of the namespaces that may use the host whose machines can be on the network. All
	// of them when left out.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
}

// BridgeType says what kind of switch a bridge is.
// +kubebuilder:validation:Enum=Linux;OpenVSwitch
type BridgeType string

// The bridge types.
const (
	// BridgeTypeLinux is a bridge of the Linux kernel.
	BridgeTypeLinux BridgeType = "Linux"
	// BridgeTypeOpenVSwitch is a bridge of Open vSwitch.
	BridgeTypeOpenVSwitch BridgeType = "OpenVSwitch"
)

// NetworkFilter is a libvirt network filter (https://libvirt.org/formatnwfilter.html). The addresses that an
// interface has from pools are its parameters IP and IPV6.
type NetworkFilter struct {
	// name of the filter on the host, for example clean-traffic. At most 255 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_.-]*$`
	Name string `json:"name,omitempty"`

	// parameters of the filter, the same for all machines, from 1 to 32, for example CTRL_IP_LEARNING and
	// DHCPSERVER. A name that stands there several times has several values. MAC, IP and IPV6 are each machine's own.
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

// HostReserved is what is kept back for a host itself.
type HostReserved struct {
	// cpus is the number of CPUs that are kept back, from 0 to 1024. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	CPUs *int32 `json:"cpus,omitempty"`

	// memory that is kept back, at most 16Ti. Defaults to 2Gi.
	// +optional
	// +kubebuilder:default="2Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0",message="must be at least 0 and at most 16Ti"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// storage that is kept back in each storage pool, at most 64Ti. Defaults to 10Gi.
	// +optional
	// +kubebuilder:default="10Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="must be at least 0 and at most 64Ti"
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// HostOvercommit says how much more than it has a host may promise to its machines.
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

// MaintenanceMode says how far a host is taken out of use.
// +kubebuilder:validation:Enum=Cordon;Evacuate
type MaintenanceMode string

// The maintenance modes.
const (
	// MaintenanceCordon places no more machines on the host and leaves those that are there.
	MaintenanceCordon MaintenanceMode = "Cordon"
	// MaintenanceEvacuate places no more machines on the host, and asks MachineHealthChecks to replace
	// those that are there, one by one.
	MaintenanceEvacuate MaintenanceMode = "Evacuate"
)

// HostMaintenance takes a host out of use.
type HostMaintenance struct {
	// mode says how far: Cordon or Evacuate. Defaults to Cordon.
	// +optional
	// +kubebuilder:default=Cordon
	Mode MaintenanceMode `json:"mode,omitempty"`

	// reason is shown in the host's Ready condition. At most 256 characters.
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

	// storage is the room in the storage pools for disks, all together, in bytes or with a suffix such as Gi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// Features of hosts that machines can ask for, as status.features has them. This is the one list: what
// finds them out on a host and what asks for them use these names.
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
	// HostFeatureHugepagesPrefix, with the size of a page behind it: the host has set such pages aside.
	HostFeatureHugepagesPrefix = "hugepages-"
)

// LibvirtHostStatus is what was last seen of a host.
type LibvirtHostStatus struct {
	// conditions of the host, at most 32: Ready, Paused, Reachable, PoolsReady, NetworksReady,
	// OrphansFound, and Evacuated while spec.maintenance asks for it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is what the host has.
	// +optional
	Capacity HostResources `json:"capacity,omitempty,omitzero"`

	// allocated is how much machines and domains that are not ours take.
	// +optional
	Allocated HostResources `json:"allocated,omitempty,omitzero"`

	// arch is the architecture of the host: amd64, arm64, s390x or ppc64le.
	// +optional
	Arch Architecture `json:"arch,omitempty"`

	// features that machines can ask for and that the host has, for example kvm, uefi, secure-boot,
	// tpm, hugepages-2Mi. At most 64, each of at most 63 characters.
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

	// orphans are domains and volumes on the host that were made for LibvirtMachines which don't exist, by
	// the UUID of the machine. At most 64: the condition OrphansFound says how many there are.
	// +optional
	// +listType=map
	// +listMapKey=uuid
	// +kubebuilder:validation:MaxItems=64
	Orphans []HostOrphan `json:"orphans,omitempty"`

	// evacuation is how far the host is evacuated, while spec.maintenance asks for it.
	// +optional
	Evacuation *HostEvacuation `json:"evacuation,omitempty"`
}

// HostOrphan is what is left on a host of a LibvirtMachine that doesn't exist.
type HostOrphan struct {
	// uuid of the machine, with which the names of its volumes begin.
	// +required
	// +kubebuilder:validation:MinLength=36
	// +kubebuilder:validation:MaxLength=36
	UUID string `json:"uuid,omitempty"`

	// domain is the name of the domain. Empty when only volumes are left. At most 255 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Domain string `json:"domain,omitempty"`

	// machine is the LibvirtMachine that the domain says it was made for, as namespace/name. Volumes
	// don't say it. At most 317 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Machine string `json:"machine,omitempty"`

	// volumes is how many volumes are left.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Volumes *int32 `json:"volumes,omitempty"`

	// since is when it was first found without its LibvirtMachine.
	// +optional
	Since metav1.Time `json:"since,omitempty,omitzero"`

	// keptBecause says why it isn't deleted now. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	KeptBecause string `json:"keptBecause,omitempty"`
}

// HostEvacuation is how far a host is evacuated.
type HostEvacuation struct {
	// machines is how many LibvirtMachines were bound to the host when the evacuation began.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Machines *int32 `json:"machines,omitempty"`

	// current is the Machine that is being replaced. The next one's turn comes when it is gone and what
	// owned it has its replacement.
	// +optional
	Current *EvacuatedMachine `json:"current,omitempty"`
}

// EvacuatedMachine is a Machine that is being replaced elsewhere.
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

	// uid of the Machine: another one of the same name isn't it. At most 64 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// ownerKind is the kind of what owns the Machine and replaces it, for example MachineSet. At most 63
	// characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	OwnerKind string `json:"ownerKind,omitempty"`

	// ownerName is the name of what owns the Machine, in the same namespace. At most 253 characters.
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
// +kubebuilder:printcolumn:name="Libvirt",type="string",JSONPath=".status.libvirtVersion",description="Version of the libvirt daemon",priority=1
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1

// LibvirtHost is one hypervisor that machines can be placed on. Hosts are shared by all clusters.
type LibvirtHost struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is how the host is reached, and which of its resources machines may use.
	// +required
	Spec LibvirtHostSpec `json:"spec,omitempty,omitzero"`

	// status is what was last seen of the host.
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

func init() {
	objectTypes = append(objectTypes, &LibvirtHost{}, &LibvirtHostList{})
}
