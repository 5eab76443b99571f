package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtMachineSpec is the desired state of a machine.
//
// An update extension may change cpus, memory and the sizes of disks in place. runPolicy may change at any time. The
// controller sets providerID and hostName once. Other fields are immutable: replace the machine.
// +kubebuilder:validation:XValidation:rule="has(self.providerID) == has(self.hostName)",message="providerID and hostName are written together: set both or neither"
type LibvirtMachineSpec struct {
	// providerID is libvirt:/// followed by the UUID of the domain, and is the provider ID of the node. The
	// controller sets it together with hostName before it creates anything. Immutable once set.
	// +optional
	// +kubebuilder:validation:MinLength=47
	// +kubebuilder:validation:MaxLength=47
	// +kubebuilder:validation:Pattern=`^libvirt:///[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ProviderID string `json:"providerID,omitempty"`

	// hostName is the name of the LibvirtHost that the machine is bound to. The controller sets it together with
	// providerID. Immutable once set. At most 253 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	HostName string `json:"hostName,omitempty"`

	// cpus is the number of virtual CPUs, from 1 to 512. May change in place, unless cpu.dedicated is true. Defaults
	// to 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=512
	CPUs int32 `json:"cpus,omitempty"`

	// memory of the machine, at least 256Mi and at most 16Ti. May change in place. Defaults to 4Gi.
	// +optional
	// +kubebuilder:default="4Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('256Mi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0",message="must be at least 256Mi and at most 16Ti"
	Memory resource.Quantity `json:"memory,omitempty,omitzero"`

	// cpu is the kind of CPU. Defaults to mode host-model and architecture amd64, not dedicated.
	// +optional
	// +kubebuilder:default={}
	CPU CPUSpec `json:"cpu,omitempty,omitzero"`

	// firmware of the machine. Defaults to UEFI without secure boot.
	// +optional
	// +kubebuilder:default={}
	Firmware FirmwareSpec `json:"firmware,omitempty,omitzero"`

	// tpm gives the machine an emulated TPM 2.0. Defaults to none.
	// +optional
	TPM *TPMSpec `json:"tpm,omitempty"`

	// image is the initial content of the root disk: a url with a checksum, or a volume on the hosts.
	// +required
	Image ImageSpec `json:"image,omitempty,omitzero"`

	// rootDisk is the size and location of the root disk. Defaults to an overlay of 20Gi in the first of the host's
	// pools.
	// +optional
	// +kubebuilder:default={}
	RootDisk RootDiskSpec `json:"rootDisk,omitempty,omitzero"`

	// extraDisks are additional disks, initially empty, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ExtraDisks []ExtraDiskSpec `json:"extraDisks,omitempty"`

	// interfaces are the network interfaces, from 1 to 8, in the order of the guest's devices. The first one has the
	// address of the node. Defaults to one on the network named default.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={{network: "default"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Interfaces []InterfaceSpec `json:"interfaces,omitempty"`

	// hostDevices are requests for PCI devices of the host, at most 16. Only hosts with enough free devices are
	// considered.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	HostDevices []HostDeviceSpec `json:"hostDevices,omitempty"`

	// hugepages backs the machine's memory with huge pages. Defaults to ordinary memory.
	// +optional
	Hugepages *HugepagesSpec `json:"hugepages,omitempty"`

	// autostart starts the machine when its host starts. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	Autostart *bool `json:"autostart,omitempty"`

	// runPolicy says what happens to a provisioned machine that stops: Always starts it again, Manual doesn't. May
	// change at any time. An update in place starts the machine in both cases. Defaults to Always.
	// +optional
	// +kubebuilder:default=Always
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// guestAgent adds the channel for the QEMU guest agent. If the image has an agent, it is a source of addresses.
	// Defaults to true.
	// +optional
	// +kubebuilder:default=true
	GuestAgent *bool `json:"guestAgent,omitempty"`

	// bootstrapFormat is the format of the bootstrap data that the image supports: cloud-config or ignition. Must
	// match the bootstrap provider. Defaults to cloud-config.
	// +optional
	// +kubebuilder:default=cloud-config
	BootstrapFormat BootstrapFormat `json:"bootstrapFormat,omitempty"`
}

// RunPolicy says what happens to a machine that stops.
// +kubebuilder:validation:Enum=Always;Manual
type RunPolicy string

// The run policies.
const (
	// RunAlways starts a machine again that was shut down or has crashed.
	RunAlways RunPolicy = "Always"
	// RunManual leaves starting a machine to people.
	RunManual RunPolicy = "Manual"
)

// InstanceState is the state of a machine's domain, as libvirt reports it.
// +kubebuilder:validation:Enum=NotFound;Running;Blocked;Paused;ShuttingDown;ShutOff;Crashed;Suspended;Unknown
type InstanceState string

// The states of a domain.
const (
	// InstanceNotFound means that the host has no such domain.
	InstanceNotFound InstanceState = "NotFound"
	// InstanceRunning means that the domain runs.
	InstanceRunning InstanceState = "Running"
	// InstanceBlocked means that the domain waits for a resource.
	InstanceBlocked InstanceState = "Blocked"
	// InstancePaused means that the domain was paused by a user or an I/O error.
	InstancePaused InstanceState = "Paused"
	// InstanceShuttingDown means that the domain is shutting down.
	InstanceShuttingDown InstanceState = "ShuttingDown"
	// InstanceShutOff means that the domain doesn't run.
	InstanceShutOff InstanceState = "ShutOff"
	// InstanceCrashed means that the domain has crashed.
	InstanceCrashed InstanceState = "Crashed"
	// InstanceSuspended means that the guest has suspended itself.
	InstanceSuspended InstanceState = "Suspended"
	// InstanceUnknown means that the host doesn't answer.
	InstanceUnknown InstanceState = "Unknown"
)

// LibvirtMachineInitializationStatus is the provisioning state of the machine.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachineInitializationStatus struct {
	// provisioned becomes true once the machine's domain runs and has an address, or has run for a while without one,
	// and stays true. Part of Cluster API's contract: the Machine waits for it.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtMachineStatus is the observed state of a machine. The controller can restore it from spec and the host.
type LibvirtMachineStatus struct {
	// conditions of the machine, at most 32: Ready, Paused, and one for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is the provisioning state of the machine. Part of Cluster API's contract.
	// +optional
	Initialization LibvirtMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses of the machine, at most 256: its name and the IP addresses of its interfaces, or of its node if no
	// other source has any.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`

	// failureDomain is the failure domain of the host that the machine is bound to. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// instanceState is the state of the machine's domain: NotFound, Running, Blocked, Paused, ShuttingDown, ShutOff,
	// Crashed, Suspended, or Unknown while the host doesn't answer.
	// +optional
	InstanceState InstanceState `json:"instanceState,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtmachines,shortName=lvm,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster that the machine belongs to"
// +kubebuilder:printcolumn:name="Host",type="string",JSONPath=".spec.hostName",description="Host that the machine is bound to"
// +kubebuilder:printcolumn:name="Provisioned",type="boolean",JSONPath=".status.initialization.provisioned",description="Whether the machine has been provisioned"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the machine is ready"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".status.instanceState",description="State of the machine's domain"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the machine was created"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1
// +kubebuilder:printcolumn:name="Failure Domain",type="string",JSONPath=".status.failureDomain",description="Failure domain of the machine's host",priority=1
// +kubebuilder:printcolumn:name="Address",type="string",JSONPath=".status.addresses[?(@.type==\"InternalIP\")].address",description="IP address of the machine",priority=1
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".spec.cpus",description="Number of virtual CPUs",priority=1
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".spec.memory",description="Memory of the machine",priority=1
// +kubebuilder:printcolumn:name="Provider ID",type="string",JSONPath=".spec.providerID",description="Provider ID of the machine",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",description="What is in the way while it is not ready",priority=1

// LibvirtMachine is a virtual machine on a libvirt host: the InfraMachine of this provider.
type LibvirtMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the desired state of the machine.
	// +required
	Spec LibvirtMachineSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the machine.
	// +optional
	Status LibvirtMachineStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the machine.
func (m *LibvirtMachine) GetConditions() []metav1.Condition {
	return m.Status.Conditions
}

// SetConditions replaces the conditions of the machine.
func (m *LibvirtMachine) SetConditions(conditions []metav1.Condition) {
	m.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// LibvirtMachineList is a list of LibvirtMachines.
type LibvirtMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the machines.
	Items []LibvirtMachine `json:"items"`
}
