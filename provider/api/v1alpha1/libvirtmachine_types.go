package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtMachineSpec says what a machine is to be like.
//
// cpus, memory and the sizes of disks may change in place, by an update extension, and runPolicy at any time; providerID and
// hostName are written back once; everything else changes only by replacing the machine.
// +kubebuilder:validation:XValidation:rule="has(self.providerID) == has(self.hostName)",message="providerID and hostName are written together: set both or neither"
type LibvirtMachineSpec struct {
	// providerID is libvirt:/// and the UUID of the domain, and is the provider ID of the node. The
	// controller writes it, together with hostName, before it makes anything. Immutable once set.
	// +optional
	// +kubebuilder:validation:MinLength=47
	// +kubebuilder:validation:MaxLength=47
	// +kubebuilder:validation:Pattern=`^libvirt:///[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`
	ProviderID string `json:"providerID,omitempty"`

	// hostName is the name of the LibvirtHost that the machine is bound to. The controller writes it
	// once, together with providerID. Immutable once set. At most 253 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	HostName string `json:"hostName,omitempty"`

	// cpus is the number of virtual CPUs, from 1 to 512. May change in place,
	// unless cpu.dedicated. Defaults to 2.
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

	// cpu says what kind of CPU the machine has. Defaults to mode host-model and architecture amd64, not
	// dedicated.
	// +optional
	// +kubebuilder:default={}
	CPU CPUSpec `json:"cpu,omitempty,omitzero"`

	// firmware says what starts the machine. Defaults to UEFI without secure boot.
	// +optional
	// +kubebuilder:default={}
	Firmware FirmwareSpec `json:"firmware,omitempty,omitzero"`

	// tpm gives the machine an emulated TPM 2.0. None when left out.
	// +optional
	TPM *TPMSpec `json:"tpm,omitempty"`

	// image says what the root disk starts from: url with checksum, or a volume that the hosts have.
	// +required
	Image ImageSpec `json:"image,omitempty,omitzero"`

	// rootDisk says how large the root disk is and where it lies. Defaults to an overlay of 20Gi in
	// the first of the host's pools.
	// +optional
	// +kubebuilder:default={}
	RootDisk RootDiskSpec `json:"rootDisk,omitempty,omitzero"`

	// extraDisks are more disks, empty at first, at most 16.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ExtraDisks []ExtraDiskSpec `json:"extraDisks,omitempty"`

	// interfaces are the network interfaces, from 1 to 8, in the order that the guest sees them. The
	// first gives the node its address. Defaults to one on the network called default.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={{network: "default"}}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Interfaces []InterfaceSpec `json:"interfaces,omitempty"`

	// hostDevices are requests for PCI devices of the host, at most 16. Only hosts with that many free
	// ones are considered.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	HostDevices []HostDeviceSpec `json:"hostDevices,omitempty"`

	// hugepages backs the machine's memory with huge pages. Ordinary memory when left out.
	// +optional
	Hugepages *HugepagesSpec `json:"hugepages,omitempty"`

	// autostart starts the machine when its host starts. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	Autostart *bool `json:"autostart,omitempty"`

	// runPolicy says what becomes of a provisioned machine that doesn't run: Always starts it again, and Manual
	// leaves it as it is. May change at any time; an update in place starts the machine in both cases.
	// Defaults to Always.
	// +optional
	// +kubebuilder:default=Always
	RunPolicy RunPolicy `json:"runPolicy,omitempty"`

	// guestAgent gives the machine the channel that the QEMU guest agent needs. Addresses are then
	// asked from the agent too, if the image has one. Defaults to true.
	// +optional
	// +kubebuilder:default=true
	GuestAgent *bool `json:"guestAgent,omitempty"`

	// bootstrapFormat is the format of bootstrap data that the image understands: cloud-config or
	// ignition. Must be what the bootstrap provider makes. Defaults to cloud-config.
	// +optional
	// +kubebuilder:default=cloud-config
	BootstrapFormat BootstrapFormat `json:"bootstrapFormat,omitempty"`
}

// RunPolicy says what becomes of a machine that doesn't run.
// +kubebuilder:validation:Enum=Always;Manual
type RunPolicy string

// The run policies.
const (
	// RunAlways starts a machine again that was switched off or has crashed.
	RunAlways RunPolicy = "Always"
	// RunManual leaves it to people whether a machine runs.
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
	// InstancePaused means that somebody or an I/O error has paused the domain.
	InstancePaused InstanceState = "Paused"
	// InstanceShuttingDown means that the domain is shutting down.
	InstanceShuttingDown InstanceState = "ShuttingDown"
	// InstanceShutOff means that the domain doesn't run.
	InstanceShutOff InstanceState = "ShutOff"
	// InstanceCrashed means that the domain has crashed.
	InstanceCrashed InstanceState = "Crashed"
	// InstanceSuspended means that the guest has suspended itself.
	InstanceSuspended InstanceState = "Suspended"
	// InstanceUnknown means that the host can't be asked at the moment.
	InstanceUnknown InstanceState = "Unknown"
)

// LibvirtMachineInitializationStatus says how far the machine has come.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachineInitializationStatus struct {
	// provisioned is true once the machine's domain has been started and has an address, or runs and
	// nobody has given it one, and stays true. Part of Cluster API's contract: the Machine goes on from here.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtMachineStatus is what was last seen of a machine. All of it can be found again from spec
// and from the host.
type LibvirtMachineStatus struct {
	// conditions of the machine, at most 32: Ready, Paused, and one for each phase.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization says how far the machine has come. Part of Cluster API's contract.
	// +optional
	Initialization LibvirtMachineInitializationStatus `json:"initialization,omitempty,omitzero"`

	// addresses of the machine, at most 256: its name and the IP addresses of its interfaces, or those
	// that its node says it has when nobody else gives any.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`

	// failureDomain is the failure domain of the host that the machine is bound to. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	FailureDomain string `json:"failureDomain,omitempty"`

	// instanceState is the state of the machine's domain: NotFound, Running, Blocked, Paused,
	// ShuttingDown, ShutOff, Crashed, Suspended, or Unknown while the host can't be asked.
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

// LibvirtMachine is a virtual machine on a libvirt host: the InfraMachine of this provider.
type LibvirtMachine struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is what the machine is to be like.
	// +required
	Spec LibvirtMachineSpec `json:"spec,omitempty,omitzero"`

	// status is what was last seen of the machine.
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

func init() {
	objectTypes = append(objectTypes, &LibvirtMachine{}, &LibvirtMachineList{})
}
