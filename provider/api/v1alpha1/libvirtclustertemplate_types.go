package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LibvirtClusterTemplateSpec has the template of cluster infrastructure.
type LibvirtClusterTemplateSpec struct {
	// template of the cluster infrastructure. Its spec is immutable: create a new template and refer to it.
	// +required
	Template LibvirtClusterTemplateResource `json:"template,omitempty,omitzero"`
}

// LibvirtClusterTemplateResource is the template of a LibvirtCluster.
type LibvirtClusterTemplateResource struct {
	// metadata for the LibvirtClusters: labels and annotations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec of the LibvirtClusters.
	// +optional
	// +kubebuilder:default={}
	Spec LibvirtClusterSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtclustertemplates,shortName=lvct,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Load Balancer",type="string",JSONPath=".spec.template.spec.controlPlaneLoadBalancer.type",description="What stands in front of the control plane"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the template was created"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.template.spec.controlPlaneEndpoint.host",description="Host of the control plane endpoint",priority=1

// LibvirtClusterTemplate is a template for ClusterClasses: the InfraClusterTemplate of this provider.
type LibvirtClusterTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the template of cluster infrastructure.
	// +required
	Spec LibvirtClusterTemplateSpec `json:"spec,omitempty,omitzero"`
}

// +kubebuilder:object:root=true

// LibvirtClusterTemplateList is a list of LibvirtClusterTemplates.
type LibvirtClusterTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the templates.
	Items []LibvirtClusterTemplate `json:"items"`
}
