// Package v1alpha1 holds the kinds of Cluster API Provider libvirt: clusters, machines and
// machine pools on libvirt/KVM hosts, the hosts themselves, and the credentials to reach them.
//
// The kinds follow contract v1beta2 of Cluster API (InfraCluster, InfraMachine and
// InfraMachinePool in Cluster API's book). What must survive `clusterctl move` is in spec:
// move drops status.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1
