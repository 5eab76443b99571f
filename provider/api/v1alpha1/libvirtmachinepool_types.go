package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtMachinePoolSpec is the desired state of the machines of a pool. The MachinePool has their number.
type LibvirtMachinePoolSpec struct {
	// template of the LibvirtMachines, one for each replica. A change is rolled out as strategy says.
	// +required
	Template LibvirtMachineTemplateResource `json:"template,omitempty,omitzero"`

	// providerID is libvirt:/// followed by the namespace and name of the pool. The controller sets it. It is
	// informational. At most 512 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// providerIDList are the provider IDs of the pool's machines, at most 10000. The controller updates it. Part of
	// Cluster API's contract: nodes that aren't in the list are removed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	ProviderIDList []string `json:"providerIDList,omitempty"`

	// strategy of rolling out a change of template. Defaults to one additional machine at a time.
	// +optional
	// +kubebuilder:default={}
	Strategy MachinePoolStrategy `json:"strategy,omitempty,omitzero"`
}

// MachinePoolStrategy is the strategy of a rollout. maxSurge and maxUnavailable can't both be 0.
type MachinePoolStrategy struct {
	// maxSurge is the maximum number of machines above the desired replicas, as a number or a percentage (rounded
	// up). Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]{1,4}|([0-9]|[1-9][0-9]|100)%)$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is the maximum number of unavailable replicas, as a number or a percentage of the desired
	// replicas (rounded down). Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^([0-9]|[1-9][0-9]{1,4}|([0-9]|[1-9][0-9]|100)%)$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// LibvirtMachinePoolInitializationStatus is the provisioning state of the pool.
// +kubebuilder:validation:MinProperties=1
type LibvirtMachinePoolInitializationStatus struct {
	// provisioned becomes true once all machines of the pool are provisioned, and stays true. Part of Cluster API's
	// contract.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtMachinePoolInstanceStatus is the observed state of one machine of a pool.
type LibvirtMachinePoolInstanceStatus struct {
	// instanceName is the name of the LibvirtMachine. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	InstanceName string `json:"instanceName,omitempty"`

	// providerID of the machine. At most 512 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	ProviderID string `json:"providerID,omitempty"`

	// addresses of the machine, at most 256.
	// +optional
	Addresses clusterv1.MachineAddresses `json:"addresses,omitempty"`

	// version is the Kubernetes version of the machine, for example v1.36.3. At most 256 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Version string `json:"version,omitempty"`

	// ready reports whether the machine is ready.
	// +optional
	Ready *bool `json:"ready,omitempty"`
}

// LibvirtMachinePoolStatus is the observed state of a pool.
type LibvirtMachinePoolStatus struct {
	// conditions of the pool, at most 32: Ready, Paused, ReplicasReady, UpToDate.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is the provisioning state of the pool. Part of Cluster API's contract.
	// +optional
	Initialization LibvirtMachinePoolInitializationStatus `json:"initialization,omitempty,omitzero"`

	// ready has the value of initialization.provisioned. It is the field of Cluster API's v1beta1 contract, which the
	// MachinePool controller still reads.
	// +optional
	Ready *bool `json:"ready,omitempty"`

	// replicas is the number of machines that the pool has. Part of Cluster API's contract.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// instances are the machines of the pool, at most 10000.
	// +optional
	// +listType=map
	// +listMapKey=instanceName
	// +kubebuilder:validation:MaxItems=10000
	Instances []LibvirtMachinePoolInstanceStatus `json:"instances,omitempty"`

	// infrastructureMachineKind is the kind of the pool's machines: LibvirtMachine. Part of Cluster API's contract,
	// which creates a Machine for each.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	InfrastructureMachineKind string `json:"infrastructureMachineKind,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtmachinepools,shortName=lvmp,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster that the pool belongs to"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".status.replicas",description="Number of machines that the pool has"
// +kubebuilder:printcolumn:name="Provisioned",type="boolean",JSONPath=".status.initialization.provisioned",description="Whether the pool has been provisioned"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the pool is ready"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the pool was created"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1
// +kubebuilder:printcolumn:name="Up-To-Date",type="string",JSONPath=".status.conditions[?(@.type==\"UpToDate\")].status",description="Whether all machines are made from the template as it is now",priority=1
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".spec.template.spec.cpus",description="Number of virtual CPUs",priority=1
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".spec.template.spec.memory",description="Memory of a machine",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",description="What is in the way while it is not ready",priority=1

// LibvirtMachinePool is a pool of machines on libvirt hosts: the InfraMachinePool of this provider.
type LibvirtMachinePool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the desired state of the pool's machines.
	// +required
	Spec LibvirtMachinePoolSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the pool.
	// +optional
	Status LibvirtMachinePoolStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the pool.
func (p *LibvirtMachinePool) GetConditions() []metav1.Condition {
	return p.Status.Conditions
}

// SetConditions replaces the conditions of the pool.
func (p *LibvirtMachinePool) SetConditions(conditions []metav1.Condition) {
	p.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// LibvirtMachinePoolList is a list of LibvirtMachinePools.
type LibvirtMachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the pools.
	Items []LibvirtMachinePool `json:"items"`
}
