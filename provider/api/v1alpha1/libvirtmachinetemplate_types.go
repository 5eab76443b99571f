package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtMachineTemplateSpec has the template of machines.
type LibvirtMachineTemplateSpec struct {
	// template of the machines. Its spec is immutable: create a new template and refer to it.
	// +required
	Template LibvirtMachineTemplateResource `json:"template,omitempty,omitzero"`
}

// LibvirtMachineTemplateResource is the template of a LibvirtMachine.
type LibvirtMachineTemplateResource struct {
	// metadata for the machines: labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the machines. providerID, hostName and the macAddress of interfaces can't be set here, as they belong
	// to one machine.
	// +required
	Spec LibvirtMachineSpec `json:"spec,omitempty,omitzero"`
}

// NodeInfo describes the nodes of machines from a template.
// +kubebuilder:validation:MinProperties=1
type NodeInfo struct {
	// architecture of the nodes: amd64, arm64, s390x or ppc64le.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// operatingSystem of the nodes, for example linux. At most 63 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	OperatingSystem string `json:"operatingSystem,omitempty"`
}

// LibvirtMachineTemplateStatus describes a node to autoscalers that scale from zero.
type LibvirtMachineTemplateStatus struct {
	// capacity of a node from this template: cpu and memory. Part of Cluster API's contract for autoscaling from
	// zero.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// nodeInfo is the architecture and operating system of a node from this template. Part of Cluster API's contract
	// for autoscaling from zero.
	// +optional
	NodeInfo NodeInfo `json:"nodeInfo,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtmachinetemplates,shortName=lvmt,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster that the template belongs to"
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".spec.template.spec.cpus",description="Number of virtual CPUs"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".spec.template.spec.memory",description="Memory of a machine"
// +kubebuilder:printcolumn:name="Root Disk",type="string",JSONPath=".spec.template.spec.rootDisk.size",description="Size of the root disk"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the template was created"
// +kubebuilder:printcolumn:name="Architecture",type="string",JSONPath=".spec.template.spec.cpu.architecture",description="Architecture of a machine",priority=1
// +kubebuilder:printcolumn:name="Image",type="string",JSONPath=".spec.template.spec.image.url",description="URL of the image",priority=1
// +kubebuilder:printcolumn:name="Volume",type="string",JSONPath=".spec.template.spec.image.volume",description="Volume of the image",priority=1

// LibvirtMachineTemplate is a template of machines: the InfraMachineTemplate of this provider.
type LibvirtMachineTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the template of machines.
	// +required
	Spec LibvirtMachineTemplateSpec `json:"spec,omitempty,omitzero"`

	// status describes a node from this template to autoscalers.
	// +optional
	Status LibvirtMachineTemplateStatus `json:"status,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// LibvirtMachineTemplateList is a list of LibvirtMachineTemplates.
type LibvirtMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the templates.
	Items []LibvirtMachineTemplate `json:"items"`
}
