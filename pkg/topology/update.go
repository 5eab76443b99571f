package topology

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AdmitUpdate returns the reasons of Cluster API's webhook for refusing the new form of a ClusterClass if the old one
// is installed: the reasons in every cluster, and, in inUse, those in a cluster with Clusters that use all of the old
// class. It leaves out the reasons for refusing it as a new class, which Admit returns. The error means that the
// webhook could not judge the class.
//
// Source: Cluster API book, ClusterClass, "Changing a ClusterClass".
func AdmitUpdate(ctx context.Context, before, after *clusterv1.ClusterClass) (always, inUse []metav1.StatusCause, err error) {
	known, err := Admit(ctx, after)
	if err != nil {
		return nil, nil, err
	}
	if always, err = admitUpdate(ctx, before, after, nil); err != nil {
		return nil, nil, err
	}
	always = without(always, known)
	if inUse, err = admitUpdate(ctx, before, after, usersOf(before, after)); err != nil {
		return nil, nil, err
	}
	return always, without(without(inUse, known), always), nil
}

// without returns the problems that are not among others.
func without(problems, others []metav1.StatusCause) []metav1.StatusCause {
	return slices.DeleteFunc(slices.Clone(problems), func(p metav1.StatusCause) bool { return slices.Contains(others, p) })
}

// admitUpdate lets the webhook judge an update in a cluster with the given Clusters of the class.
func admitUpdate(ctx context.Context, before, after *clusterv1.ClusterClass, clusters []clusterv1.Cluster) ([]metav1.StatusCause, error) {
	before, after = before.DeepCopy(), after.DeepCopy()
	before.Namespace, after.Namespace = "default", "default"
	_, err := (&admission.ClusterClass{Client: clustersOnly{clusters}}).ValidateUpdate(ctx, before, after)
	return problemsOf(after, err)
}

// usersOf returns Clusters that together use all of a class: each of its workers, its health checks, and each of its
// Kubernetes versions.
func usersOf(class, next *clusterv1.ClusterClass) []clusterv1.Cluster {
	versions := class.Spec.KubernetesVersions
	if len(versions) == 0 {
		versions = []string{""}
		if len(next.Spec.KubernetesVersions) > 0 {
			versions = next.Spec.KubernetesVersions[:1] // the version of a Cluster is not known
		}
	}
	clusters := make([]clusterv1.Cluster, 0, len(versions))
	for _, version := range versions {
		cluster := clusterv1.Cluster{}
		cluster.Name, cluster.Namespace = "of-the-class", "default"
		cluster.Spec.Topology.ClassRef.Name, cluster.Spec.Topology.Version = class.Name, version
		if class.Spec.ControlPlane.HealthCheck.IsDefined() {
			cluster.Spec.Topology.ControlPlane.HealthCheck.Enabled = ptr.To(true)
		}
		for _, md := range class.Spec.Workers.MachineDeployments {
			topology := clusterv1.MachineDeploymentTopology{Class: md.Class, Name: md.Class}
			if md.HealthCheck.IsDefined() {
				topology.HealthCheck.Enabled = ptr.To(true)
			}
			cluster.Spec.Topology.Workers.MachineDeployments = append(cluster.Spec.Topology.Workers.MachineDeployments, topology)
		}
		for _, mp := range class.Spec.Workers.MachinePools {
			cluster.Spec.Topology.Workers.MachinePools = append(cluster.Spec.Topology.Workers.MachinePools, clusterv1.MachinePoolTopology{Class: mp.Class, Name: mp.Class})
		}
		clusters = append(clusters, cluster)
	}
	return clusters
}

// clustersOnly is a cluster that contains only Clusters.
type clustersOnly struct{ clusters []clusterv1.Cluster }

// Get implements client.Reader.
func (clustersOnly) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Reader. All Clusters have the class of the query.
func (c clustersOnly) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	clusters, ok := list.(*clusterv1.ClusterList)
	if !ok {
		return fmt.Errorf("listing %T: only Clusters can be listed here", list)
	}
	clusters.Items = c.clusters
	return nil
}
