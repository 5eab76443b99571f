package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LibvirtClusterIdentitySpec has the location of credentials and the namespaces that may use them.
type LibvirtClusterIdentitySpec struct {
	// secretRef names the Secret with the credentials. For qemu+tls it has tls.crt, tls.key and ca.crt; for qemu+ssh
	// it has ssh-privatekey and known_hosts. The controller makes the identity an owner of the Secret, so that
	// `clusterctl move` moves both.
	// +required
	SecretRef SecretReference `json:"secretRef,omitempty,omitzero"`

	// allowedNamespaces selects the namespaces that may place machines on hosts with this identity. Defaults to none.
	// An empty object allows all namespaces.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// namespaceQuota limits the resources of the machines of each namespace on the hosts with this identity. Defaults
	// to no limit. Existing machines stay when it is lowered.
	// +optional
	NamespaceQuota *NamespaceQuota `json:"namespaceQuota,omitempty"`
}

// NamespaceQuota limits the resources of the machines of one namespace.
// +kubebuilder:validation:MinProperties=1
type NamespaceQuota struct {
	// cpus is the number of virtual CPUs, including dedicated ones, from 0 to 1000000. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	CPUs *int32 `json:"cpus,omitempty"`

	// memory of the machines, including huge pages, at most 16Pi. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('16Pi')) <= 0",message="must be at least 0 and at most 16Pi"
	Memory *resource.Quantity `json:"memory,omitempty"`

	// storage is the total size of the machines' disks, at most 1Ei. Defaults to no limit.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('1Ei')) <= 0",message="must be at least 0 and at most 1Ei"
	Storage *resource.Quantity `json:"storage,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// name of the Secret. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name,omitempty"`

	// namespace of the Secret. Defaults to the namespace of the provider, in which `clusterctl move` looks for such
	// Secrets. At most 63 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// AllowedNamespaces selects namespaces, by name or by label. A namespace is allowed if either selects it. If both are
// empty, every namespace is allowed.
type AllowedNamespaces struct {
	// list has the names of namespaces, at most 256.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	List []string `json:"list,omitempty"`

	// selector selects namespaces by label.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// LibvirtClusterIdentityStatus is the observed state of the credentials.
type LibvirtClusterIdentityStatus struct {
	// conditions of the identity, at most 32: Ready, Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtclusteridentities,shortName=lvci,scope=Cluster,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move-hierarchy="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the credentials can be used"
// +kubebuilder:printcolumn:name="Secret",type="string",JSONPath=".spec.secretRef.name",description="Secret with the credentials"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the identity was created"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1
// +kubebuilder:printcolumn:name="Secret Namespace",type="string",JSONPath=".spec.secretRef.namespace",description="Namespace of the Secret",priority=1
// +kubebuilder:printcolumn:name="Allowed",type="string",JSONPath=".spec.allowedNamespaces.list",description="Namespaces that are allowed by name",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",description="What is in the way while it is not ready",priority=1

// LibvirtClusterIdentity has credentials for libvirt hosts, and the namespaces that may use them.
type LibvirtClusterIdentity struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec has the location of the credentials and the namespaces that may use them.
	// +required
	Spec LibvirtClusterIdentitySpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the credentials.
	// +optional
	Status LibvirtClusterIdentityStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the identity.
func (i *LibvirtClusterIdentity) GetConditions() []metav1.Condition {
	return i.Status.Conditions
}

// SetConditions replaces the conditions of the identity.
func (i *LibvirtClusterIdentity) SetConditions(conditions []metav1.Condition) {
	i.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// LibvirtClusterIdentityList is a list of LibvirtClusterIdentities.
type LibvirtClusterIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the identities.
	Items []LibvirtClusterIdentity `json:"items"`
}
