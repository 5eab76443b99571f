package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtMachinePoolTemplateSpec has the template of pools.
type LibvirtMachinePoolTemplateSpec struct {
	// template of the pools. Its spec is immutable: create a new template and refer to it.
	// +required
	Template LibvirtMachinePoolTemplateResource `json:"template,omitempty,omitzero"`
}

// LibvirtMachinePoolTemplateResource is the template of a LibvirtMachinePool.
type LibvirtMachinePoolTemplateResource struct {
	// metadata for the pools: labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the pools. providerID and providerIDList can't be set here, as they belong to one pool.
	// +required
	Spec LibvirtMachinePoolSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtmachinepooltemplates,shortName=lvmpt,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="CPUs",type="integer",JSONPath=".spec.template.spec.template.spec.cpus",description="Number of virtual CPUs"
// +kubebuilder:printcolumn:name="Memory",type="string",JSONPath=".spec.template.spec.template.spec.memory",description="Memory of a machine"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the template was created"
// +kubebuilder:printcolumn:name="Max Surge",type="string",JSONPath=".spec.template.spec.strategy.maxSurge",description="Machines above the replicas asked for during a roll-out",priority=1
// +kubebuilder:printcolumn:name="Max Unavailable",type="string",JSONPath=".spec.template.spec.strategy.maxUnavailable",description="Replicas that may be missing during a roll-out",priority=1

// LibvirtMachinePoolTemplate is a template for ClusterClasses: the InfraMachinePoolTemplate of this provider.
type LibvirtMachinePoolTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the template of pools.
	// +required
	Spec LibvirtMachinePoolTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// LibvirtMachinePoolTemplateList is a list of LibvirtMachinePoolTemplates.
type LibvirtMachinePoolTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the templates.
	Items []LibvirtMachinePoolTemplate `json:"items"`
}
