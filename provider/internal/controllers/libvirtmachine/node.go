package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// setNodeProviderID sets the provider ID of the machine's node if the node has none. Cluster API finds the Machine's
// node by it (contract for InfraMachine, "provider ID"). The node is the one with the system UUID of the domain. An
// existing provider ID is never changed. Errors only affect the condition.
func (s *scope) setNodeProviderID(ctx context.Context) (verdict, error) {
	if s.Workload == nil {
		conditions.Delete(s.infra, infrav1.NodeProviderIDSetCondition) // of a manager with the feature
		return goOn, nil
	}
	if s.machine.Status.NodeRef != (clusterv1.MachineNodeReference{}) {
		s.setTrue(infrav1.NodeProviderIDSetCondition, infrav1.NodeProviderIDSetReason)
		return goOn, nil
	}
	waits := func(reason, message string, values ...any) (verdict, error) {
		s.set(infrav1.NodeProviderIDSetCondition, metav1.ConditionFalse, reason, message, values...)
		return goOn, nil
	}
	node, err := s.findNode(ctx)
	var several *severalNodesError
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected): // a new connection triggers a reconcile
		return waits(infrav1.WaitingForNodeReason, "Waiting for the workload cluster to be reached. %s", s.seeConsole())
	case errors.As(err, &several):
		return waits(infrav1.NodeProviderIDConflictReason, "%s", err.Error())
	case err != nil:
		s.requeueWithin(noFitDelay)
		return waits(infrav1.InternalErrorReason, "%s", err.Error())
	case node == nil:
		return waits(infrav1.WaitingForNodeReason, "No node has the system UUID %s so far. %s", s.uuid, s.seeConsole())
	case node.Spec.ProviderID != "" && node.Spec.ProviderID != s.infra.Spec.ProviderID:
		return waits(infrav1.NodeProviderIDConflictReason,
			"Node %s of this machine has the provider ID %s, which can't be changed: delete the node, and let it join with %s or without a provider ID",
			node.Name, node.Spec.ProviderID, s.infra.Spec.ProviderID)
	case node.Spec.ProviderID == "":
		if err := s.writeProviderID(ctx, node); err != nil {
			s.requeueWithin(noFitDelay)
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				s.requeueWithin(outcome.ConflictDelay) // until the cache has the write
			}
			return waits(infrav1.WaitingForNodeReason, "Writing spec.providerID of node %s failed and is retried", node.Name)
		}
	}
	s.setTrue(infrav1.NodeProviderIDSetCondition, infrav1.NodeProviderIDSetReason)
	return goOn, nil
}

// severalNodesError reports that several nodes have the system UUID of the domain.
type severalNodesError struct{ names []string }

func (e *severalNodesError) Error() string {
	return fmt.Sprintf("Several nodes have the system UUID of this machine's domain, so none gets its provider ID: %s", strings.Join(e.names, ", "))
}

// findNode returns the Machine's node, or the one with the system UUID of the domain, or nil. It starts a watch of
// the cluster's nodes.
func (s *scope) findNode(ctx context.Context) (*corev1.Node, error) {
	key := client.ObjectKeyFromObject(s.cluster)
	workload, err := s.Workload.GetClient(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reaching the workload cluster: %w", err)
	}
	if err := s.Workload.Watch(ctx, key, clustercache.NewWatcher(clustercache.WatcherOptions{
		Name: "libvirtmachine-nodes", Watcher: s.controller, Kind: &corev1.Node{},
		EventHandler: handler.EnqueueRequestsFromMapFunc(s.machineOfNode),
		Predicates:   []predicate.TypedPredicate[client.Object]{nodeChanged()},
	})); err != nil {
		return nil, fmt.Errorf("watching the nodes of the workload cluster: %w", err)
	}
	if name := s.machine.Status.NodeRef.Name; name != "" {
		node := &corev1.Node{}
		if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return nil, outcome.Wrap(client.IgnoreNotFound(err), "reading the node "+name+" of the workload cluster")
		}
		return node, nil
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes, client.MatchingFields{index.NodeDomain: s.uuid}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the nodes of the workload cluster: %w", err)
	}
	switch len(nodes.Items) {
	case 0:
		return nil, nil
	case 1:
		return nodes.Items[0].DeepCopy(), nil
	}
	several := &severalNodesError{}
	for i := range nodes.Items {
		several.names = append(several.names, nodes.Items[i].Name)
	}
	return nil, several
}

func (s *scope) writeProviderID(ctx context.Context, node *corev1.Node) error {
	workload, err := s.Workload.GetClient(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	after := node.DeepCopy()
	after.Spec.ProviderID = s.infra.Spec.ProviderID
	if err := workload.Patch(ctx, after, outcome.Over(node)); err != nil {
		ctrl.LoggerFrom(ctx).Info("Writing the provider ID of the node failed", "Node", node.Name, "err", err)
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Set the provider ID of the node", "Node", node.Name, "providerID", after.Spec.ProviderID)
	s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, infrav1.NodeProviderIDSetReason, "SetProviderID",
		"Node %s has the system UUID of the domain and got the provider ID %s", node.Name, after.Spec.ProviderID)
	return nil
}

// machineOfNode returns the LibvirtMachine with the system UUID of a node. Reconcile checks the cluster.
func (r *Reconciler) machineOfNode(ctx context.Context, object client.Object) []ctrl.Request {
	var requests []ctrl.Request
	for _, id := range index.DomainsOf(object) {
		requests = append(requests, r.requests(ctx, func(*infrav1.LibvirtMachine) bool { return true },
			client.MatchingFields{index.MachineProviderID: infrav1.ProviderIDPrefix + id})...)
	}
	return requests
}

// nodeChanged passes new nodes, and changes of the system UUID, provider ID and addresses.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
			return before.Status.NodeInfo.SystemUUID != after.Status.NodeInfo.SystemUUID || before.Spec.ProviderID != after.Spec.ProviderID ||
				!slices.Equal(before.Status.Addresses, after.Status.Addresses)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// machinesOfCluster returns the bound LibvirtMachines of a workload cluster that became reachable.
func (r *Reconciler) machinesOfCluster(ctx context.Context, cluster client.Object) []ctrl.Request {
	return r.requests(ctx, func(infra *infrav1.LibvirtMachine) bool { return infra.Spec.ProviderID != "" },
		client.InNamespace(cluster.GetNamespace()), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.GetName()})
}
