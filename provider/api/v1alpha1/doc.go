// Package v1alpha1 has the API types of Cluster API Provider libvirt: clusters, machines and machine pools on
// libvirt/KVM hosts, the hosts, and the credentials for them.
//
// The kinds follow contract v1beta2 of Cluster API (InfraCluster, InfraMachine and InfraMachinePool in Cluster API's
// book). `clusterctl move` drops status, so state that must survive a move is in spec.
//
// +kubebuilder:object:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1alpha1
