package move

import (
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
)

// findStops finds the reasons that end a move before it moves any object: clusterctl's checks of Clusters,
// ClusterClasses and Machines, and the annotation that blocks a move.
func (g *Graph) findStops() {
	for _, n := range g.Nodes {
		switch {
		case n.Virtual && (n.kind == clusterKind || n.kind == classKind):
			g.stop(n, dryRuns, "an object names it as its owner, and it is not among what a move reads: clusterctl fails to get it")
		case n.Virtual && n.kind == machineKind:
			g.stop(n, backups, "an object names it as its owner, and it is not among what a move reads: clusterctl fails to get it")
		case n.cluster != nil:
			g.stopsOfCluster(n)
		case n.class != nil && annotations.HasPaused(n.Object.unstructured()):
			g.stop(n, dryRuns, "it is paused: clusterctl moves only what it pauses itself; remove the annotation %s", clusterv1.PausedAnnotation)
		case n.kind == machineKind && !g.world.Desired && n.Object.text("status", "nodeRef", "name") == "":
			g.stop(n, backups, "it has no node yet: clusterctl moves only Machines whose status.nodeRef is set")
		}
		if _, blocks := n.Object.Annotations[clusterctlv1.BlockMoveAnnotation]; blocks && n.moves() {
			g.stop(n, onlyMoves, "the annotation %s blocks the move: clusterctl waits two minutes for its controller to remove it", clusterctlv1.BlockMoveAnnotation)
		}
	}
}

// stopsOfCluster finds the reasons why a Cluster can't be moved now.
func (g *Graph) stopsOfCluster(n *Node) {
	cluster := n.cluster
	if ptr.Deref(cluster.Spec.Paused, false) || annotations.HasPaused(cluster) {
		g.stop(n, dryRuns, "it is paused: clusterctl moves only what it pauses itself; set spec.paused to false, or remove the annotation %s", clusterv1.PausedAnnotation)
	}
	switch {
	case g.world.Desired:
	case !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false):
		g.stop(n, backups, "its infrastructure is not provisioned yet: status.initialization.infrastructureProvisioned is not true")
	case !conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition):
		g.stop(n, backups, "its control plane is not initialized yet: the condition %s is not True", clusterv1.ClusterControlPlaneInitializedCondition)
	case cluster.Spec.ControlPlaneRef.IsDefined() && !ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false):
		g.stop(n, backups, "its control plane is not initialized yet: status.initialization.controlPlaneInitialized is not true")
	}
}
