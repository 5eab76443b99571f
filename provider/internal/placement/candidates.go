package placement

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// hostsFor returns all hosts that the namespace of a machine may use, in their state for this machine.
func (s *Scheduler) hostsFor(ctx context.Context, candidate Candidate) (*hostSet, error) {
	list := &infrav1.LibvirtHostList{}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	identities, namespace, err := s.identities(ctx, candidate.Infra.Namespace)
	if err != nil {
		return nil, err
	}
	selector, err := s.hostSelector(ctx, candidate)
	if err != nil {
		return nil, err
	}
	if err := s.Load(ctx); err != nil {
		return nil, err
	}
	// Take the snapshots before listing the machines, so that no own domain counts as foreign.
	set := &hostSet{snapshots: map[string]fleet.Snapshot{}}
	for i := range list.Items {
		set.snapshots[list.Items[i].Name], _ = s.Hosts.Snapshot(list.Items[i].Name)
	}
	s.observeClaimed()
	quotas := quotasOf(list.Items, identities)
	now := time.Now()
	for i := range list.Items {
		object := &list.Items[i]
		host := s.places.of(object, set.snapshots[object.Name], s.Ledger)
		if s.WatchFilterValue != "" && !labels.HasWatchLabel(object, s.WatchFilterValue) {
			host.Connecting, host.Ready = false, false
			host.Message = fmt.Sprintf("it lacks the label %s: %s of this manager", clusterv1.WatchLabel, s.WatchFilterValue)
		}
		s.newHosts.see(object.Name, host.Connecting, now)
		host.Full = s.isFull(object.Name)
		host.Selected = selector.Matches(k8slabels.Set(object.Labels))
		if ref := object.Spec.IdentityRef; ref != nil {
			host.Quota = quotas[ref.Name]
		}
		if slices.ContainsFunc(object.Spec.Networks, func(n infrav1.HostNetwork) bool { return n.AllowedNamespaces != nil }) {
			host.Networks = namesOf(access.Networks(object, namespace))
		}
		host.NamespaceAllowed = access.Host(object, identities, namespace)
		if host.NamespaceAllowed { // the names of the others must not be shown
			set.allowed = append(set.allowed, host)
		} else {
			set.unlisted = true
		}
	}
	s.places.keep(list.Items)
	return set, nil
}

// hostSelector returns the host selector of the LibvirtCluster. An empty one selects all hosts.
func (s *Scheduler) hostSelector(ctx context.Context, candidate Candidate) (k8slabels.Selector, error) {
	infra := &infrav1.LibvirtCluster{}
	key := client.ObjectKey{Namespace: candidate.Infra.Namespace, Name: candidate.Cluster.Spec.InfrastructureRef.Name}
	if err := s.Client.Get(ctx, key, infra); err != nil {
		return nil, fmt.Errorf("reading the LibvirtCluster: %w", err)
	}
	if infra.Spec.HostSelector == nil {
		return k8slabels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(infra.Spec.HostSelector)
	if err != nil {
		return nil, fmt.Errorf("reading spec.hostSelector of the LibvirtCluster: %w", err)
	}
	return selector, nil
}

// places caches hosts by name until one of their sources changes: the foreign resources of a host are sums over all of
// its domains and volumes. The zero value is ready to use.
type places struct{ sync.Map }

type place struct {
	host Host
	// of has the versions of its sources.
	of origins
}

type origins struct {
	resourceVersion  string
	snapshot, ledger uint64
}

// of returns a host without the fields that depend on the cluster. Callers must not change what the result refers to.
func (p *places) of(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, ledger *Ledger) Host {
	// Read the versions before the sources, so that a cached host is never older than its versions.
	of := origins{resourceVersion: host.ResourceVersion, snapshot: snapshot.Version, ledger: ledger.Version(host.Name)}
	if cached, exists := p.Load(host.Name); exists && cached.(place).of == of && snapshot.Version != 0 {
		return cached.(place).host
	}
	current := HostOf(host, snapshot, ledger.Domains(host.Name))
	p.Store(host.Name, place{host: current, of: of})
	return current
}

// keep removes all other hosts from the cache.
func (p *places) keep(hosts []infrav1.LibvirtHost) {
	names := map[any]bool{}
	for i := range hosts {
		names[hosts[i].Name] = true
	}
	p.Range(func(name, _ any) bool {
		if !names[name] {
			p.Delete(name)
		}
		return true
	})
}

// newHosts has the start times of first connections, by the names of hosts. The zero value is ready to use.
//
// After the start of a manager, hosts connect within seconds, one after the other. Machines wait a moment, so that
// they aren't all placed on the first host. An unreachable host doesn't delay them longer.
type newHosts struct{ sync.Map }

// see records whether a host is connecting.
func (n *newHosts) see(host string, connecting bool, now time.Time) {
	if connecting {
		n.LoadOrStore(host, now)
	} else {
		n.Delete(host)
	}
}

// wait returns how long to wait for the given hosts, at most upTo for each. It returns 0 if none is connecting.
func (n *newHosts) wait(hosts []string, upTo time.Duration, now time.Time) time.Duration {
	var longest time.Duration
	for _, host := range hosts {
		if since, exists := n.Load(host); exists {
			longest = max(longest, since.(time.Time).Add(upTo).Sub(now))
		}
	}
	return longest
}
