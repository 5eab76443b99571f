package libvirtcluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// maxFailureDomains is the limit of the contract's "InfraCluster: failure domains".
const maxFailureDomains = 100

// reconcileHosts sets status.failureDomains and the HostsAvailable condition.
func (r *Reconciler) reconcileHosts(ctx context.Context, s *scope) error {
	usable, err := r.readHosts(ctx, s.infra)
	if err != nil {
		conditions.Set(s.infra, metav1.Condition{Type: infrav1.HostsAvailableCondition, Status: metav1.ConditionUnknown,
			Reason: infrav1.InternalErrorReason, Message: err.Error()})
		return err
	}
	s.hosts = usable
	domains := usable.failureDomains(s.infra.Status.FailureDomains)
	conditions.Set(s.infra, usable.condition(s.infra.Namespace, len(domains)))
	s.infra.Status.FailureDomains = domains[:min(len(domains), maxFailureDomains)]
	s.infra.Status.FailureDomainNames = outcome.NamesOf(s.infra.Status.FailureDomains, func(d clusterv1.FailureDomain) string { return d.Name })
	return nil
}

// hosts has the hosts that a cluster may use, and those of them that it can use now. all and selected are the numbers of
// all hosts and of those that the cluster selects.
type hosts struct {
	all, selected  int
	allowed, ready []infrav1.LibvirtHost
}

func (r *Reconciler) readHosts(ctx context.Context, infra *infrav1.LibvirtCluster) (*hosts, error) {
	list, identities, namespace := &infrav1.LibvirtHostList{}, &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := r.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	if err := r.Client.List(ctx, identities); err != nil {
		return nil, fmt.Errorf("listing LibvirtClusterIdentities: %w", err)
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: infra.Namespace}, namespace); err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	return hostsOf(infra, list.Items, identities.Items, namespace)
}

// hostsOf returns the hosts of a cluster. Hosts that are being deleted aren't included.
func hostsOf(infra *infrav1.LibvirtCluster, all []infrav1.LibvirtHost, identities []infrav1.LibvirtClusterIdentity, namespace *corev1.Namespace) (*hosts, error) {
	sorted := &hosts{all: len(all)}
	for i := range all {
		host := &all[i]
		selected, err := selects(infra, host)
		if err != nil {
			return nil, err
		}
		if !selected || !host.DeletionTimestamp.IsZero() {
			continue
		}
		sorted.selected++
		if !access.Host(host, identities, namespace) {
			continue
		}
		sorted.allowed = append(sorted.allowed, *host)
		if host.Spec.Maintenance == nil && conditions.IsTrue(host, infrav1.ReadyCondition) {
			sorted.ready = append(sorted.ready, *host)
		}
	}
	return sorted, nil
}

// selects reports whether a cluster's hostSelector, if any, selects a host.
func selects(infra *infrav1.LibvirtCluster, host client.Object) (bool, error) {
	if infra.Spec.HostSelector == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(infra.Spec.HostSelector)
	if err != nil {
		return false, fmt.Errorf("reading spec.hostSelector: %w", err)
	}
	return selector.Matches(k8slabels.Set(host.GetLabels())), nil
}

// failureDomains lists the failure domains with a Ready host, and the unreachable ones that were offered before, sorted
// by name. The latter stay, because their machines will be reachable again. A failure domain with only hosts in
// maintenance, or hosts that were never Ready, isn't listed, so that Cluster API places no machines there.
func (h *hosts) failureDomains(offered []clusterv1.FailureDomain) []clusterv1.FailureDomain {
	known := map[string]bool{}
	for _, domain := range offered {
		known[domain.Name] = true
	}
	for _, host := range h.ready {
		known[failureDomain(&host)] = true
	}
	var names []string
	for _, host := range h.allowed {
		if name := failureDomain(&host); known[name] && host.Spec.Maintenance == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var domains []clusterv1.FailureDomain
	for _, name := range slices.Compact(names) {
		domains = append(domains, clusterv1.FailureDomain{Name: name, ControlPlane: ptr.To(true)})
	}
	return domains
}

func failureDomain(host *infrav1.LibvirtHost) string {
	return cmp.Or(host.Spec.FailureDomain, host.Name)
}

func (h *hosts) condition(namespace string, domains int) metav1.Condition {
	condition := metav1.Condition{Type: infrav1.HostsAvailableCondition, Status: metav1.ConditionFalse}
	switch {
	case h.all == 0:
		condition.Reason = infrav1.NoHostsSelectedReason
		condition.Message = "No LibvirtHost exists"
	case h.selected == 0:
		condition.Reason = infrav1.NoHostsSelectedReason
		condition.Message = fmt.Sprintf("spec.hostSelector selects no LibvirtHost that namespace %s may use", namespace)
	case len(h.allowed) == 0:
		condition.Reason = infrav1.NamespaceNotAllowedReason
		// Hosts aren't named to namespaces that may not use them.
		condition.Message = access.NotAllowed(namespace)
	case len(h.ready) == 0:
		condition.Reason = infrav1.NoHostsReadyReason
		condition.Message = "These hosts aren't Ready, or are in maintenance: " +
			outcome.NamesOf(h.allowed, func(host infrav1.LibvirtHost) string { return host.Name })
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, infrav1.HostsAvailableReason
		if domains > maxFailureDomains {
			condition.Message = fmt.Sprintf("Of %d failure domains, status.failureDomains lists the first %d by name", domains, maxFailureDomains)
		}
	}
	return condition
}
