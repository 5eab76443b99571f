package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// LibvirtClusterSpec describes the infrastructure of a cluster, without its machines.
type LibvirtClusterSpec struct {
	// controlPlaneEndpoint is the address of the cluster's API server. Set it, or let the controller set it from
	// controlPlaneLoadBalancer. The port defaults to 6443 when a host is set. Immutable once set.
	// +optional
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitempty,omitzero"`

	// controlPlaneLoadBalancer is the load balancer of the control plane. Defaults to KubeVIP.
	// +optional
	// +kubebuilder:default={type: "KubeVIP"}
	ControlPlaneLoadBalancer ControlPlaneLoadBalancerSpec `json:"controlPlaneLoadBalancer,omitempty,omitzero"`

	// hostSelector selects, by label, the LibvirtHosts for the cluster's machines. Defaults to all hosts that allow
	// the cluster's namespace.
	// +optional
	HostSelector *metav1.LabelSelector `json:"hostSelector,omitempty"`
}

// ControlPlaneLoadBalancerType is the kind of a control plane load balancer.
// +kubebuilder:validation:Enum=External;KubeVIP;HAProxy
type ControlPlaneLoadBalancerType string

// The kinds of load balancers.
const (
	// LoadBalancerExternal is a load balancer that isn't managed by the provider.
	LoadBalancerExternal ControlPlaneLoadBalancerType = "External"
	// LoadBalancerKubeVIP is a virtual IP of kube-vip, a static pod on the control plane machines. The provider only
	// determines the address.
	LoadBalancerKubeVIP ControlPlaneLoadBalancerType = "KubeVIP"
	// LoadBalancerHAProxy is a virtual machine with HAProxy that the provider runs.
	LoadBalancerHAProxy ControlPlaneLoadBalancerType = "HAProxy"
)

// ControlPlaneLoadBalancerSpec describes the load balancer of the control plane.
// +kubebuilder:validation:XValidation:rule="has(self.haproxy) == (self.type == 'HAProxy')",message="haproxy goes with type HAProxy: set it for that type, and for no other"
// +kubebuilder:validation:XValidation:rule="!has(self.addressFromPool) || self.type != 'External'",message="addressFromPool can't be used with type External: set controlPlaneEndpoint instead"
type ControlPlaneLoadBalancerSpec struct {
	// type of the load balancer: External, KubeVIP or HAProxy. Defaults to KubeVIP.
	// +optional
	// +kubebuilder:default=KubeVIP
	Type ControlPlaneLoadBalancerType `json:"type,omitempty"`

	// addressFromPool is the IPAM pool for the endpoint's address, used when controlPlaneEndpoint has no host.
	// +optional
	AddressFromPool *ipamv1.IPPoolReference `json:"addressFromPool,omitempty"`

	// haproxy describes the virtual machine with HAProxy. Required for type HAProxy, and not allowed otherwise.
	// +optional
	HAProxy *HAProxySpec `json:"haproxy,omitempty"`
}

// HAProxySpec describes the virtual machine with HAProxy. Changes apply to new machines only: delete the
// LibvirtMachine to get a new one.
type HAProxySpec struct {
	// image of the virtual machine. It must have cloud-init, systemd and HAProxy 2.2 or newer.
	// +required
	Image ImageSpec `json:"image,omitempty,omitzero"`

	// cpus is the number of virtual CPUs, from 1 to 16. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	CPUs int32 `json:"cpus,omitempty"`

	// memory of the virtual machine, at least 256Mi and at most 64Gi. Defaults to 1Gi.
	// +optional
	// +kubebuilder:default="1Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('256Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Gi')) <= 0",message="must be at least 256Mi and at most 64Gi"
	Memory resource.Quantity `json:"memory,omitempty,omitzero"`

	// rootDisk of the virtual machine, as in a LibvirtMachine.
	// +optional
	RootDisk RootDiskSpec `json:"rootDisk,omitempty,omitzero"`

	// network is the name of the virtual machine's network on the hosts. Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Network string `json:"network,omitempty"`
}

// LibvirtClusterInitializationStatus is the provisioning state of the cluster's infrastructure.
// +kubebuilder:validation:MinProperties=1
type LibvirtClusterInitializationStatus struct {
	// provisioned becomes true once the endpoint is set and hosts are available, and stays true. Part of Cluster
	// API's contract: the Cluster waits for it.
	// +optional
	Provisioned *bool `json:"provisioned,omitempty"`
}

// LibvirtClusterStatus is the observed state of a cluster's infrastructure.
type LibvirtClusterStatus struct {
	// conditions of the cluster's infrastructure, at most 32: Ready, Paused, HostsAvailable,
	// ControlPlaneEndpointReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// initialization is the provisioning state of the cluster's infrastructure. Part of Cluster API's contract.
	// +optional
	Initialization LibvirtClusterInitializationStatus `json:"initialization,omitempty,omitzero"`

	// failureDomains are the failure domains of the hosts that the cluster may use, at most 100. A failure domain is
	// listed once one of its hosts was Ready. Part of Cluster API's contract.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	FailureDomains []clusterv1.FailureDomain `json:"failureDomains,omitempty"`

	// failureDomainNames has the first ten names of failureDomains, separated by commas, and the number of the
	// others. It is for kubectl, whose columns can't show lists.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	FailureDomainNames string `json:"failureDomainNames,omitempty"`
}

// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtclusters,shortName=lvc,scope=Namespaced,categories=cluster-api
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",description="Cluster that this belongs to"
// +kubebuilder:printcolumn:name="Endpoint",type="string",JSONPath=".spec.controlPlaneEndpoint.host",description="Host of the control plane endpoint"
// +kubebuilder:printcolumn:name="Provisioned",type="boolean",JSONPath=".status.initialization.provisioned",description="Whether the infrastructure has been provisioned"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description="Whether the infrastructure is ready"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description="Time since the object was created"
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type==\"Paused\")].status",description="Whether reconciliation is paused",priority=1
// +kubebuilder:printcolumn:name="Port",type="integer",JSONPath=".spec.controlPlaneEndpoint.port",description="Port of the control plane endpoint",priority=1
// +kubebuilder:printcolumn:name="Load Balancer",type="string",JSONPath=".spec.controlPlaneLoadBalancer.type",description="What stands in front of the control plane",priority=1
// +kubebuilder:printcolumn:name="Failure Domains",type="string",JSONPath=".status.failureDomainNames",description="Failure domains that machines may be placed in",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",description="What is in the way while it is not ready",priority=1

// LibvirtCluster is the infrastructure of a cluster, without its machines: the InfraCluster of this provider.
type LibvirtCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty,omitzero"`

	// spec is the desired infrastructure of the cluster.
	// +optional
	// +kubebuilder:default={}
	Spec LibvirtClusterSpec `json:"spec,omitempty,omitzero"`

	// status is the observed state of the cluster's infrastructure.
	// +optional
	Status LibvirtClusterStatus `json:"status,omitempty,omitzero"`
}

// GetConditions returns the conditions of the cluster's infrastructure.
func (c *LibvirtCluster) GetConditions() []metav1.Condition {
	return c.Status.Conditions
}

// SetConditions replaces the conditions of the cluster's infrastructure.
func (c *LibvirtCluster) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// +kubebuilder:object:root=true

// LibvirtClusterList is a list of LibvirtClusters.
type LibvirtClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the clusters.
	Items []LibvirtCluster `json:"items"`
}
