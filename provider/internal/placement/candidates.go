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

// hostsFor returns all hosts that the namespace of a machine may use, as they are for the machine.
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
	// Snapshots first, and machines afterwards: no domain of ours is then taken for somebody else's.
	found := &hostSet{snapshots: map[string]fleet.Snapshot{}}
	for i := range list.Items {
		found.snapshots[list.Items[i].Name], _ = s.Hosts.Snapshot(list.Items[i].Name)
	}
	s.observeClaimed()
	quotas := quotasOf(list.Items, identities)
	now := time.Now()
	for i := range list.Items {
		object := &list.Items[i]
		host := s.places.of(object, found.snapshots[object.Name], s.Ledger)
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
		if host.NamespaceAllowed { // the others are not to be named
			found.allowed = append(found.allowed, host)
		} else {
			found.unlisted = true
		}
	}
	s.places.keep(list.Items)
	return found, nil
}

// hostSelector returns which hosts the LibvirtCluster selects. One that is left out selects all.
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

// places remembers hosts as long as nothing changes that they were made of: to count what others have taken of a host,
// all of its domains and volumes are looked at. The zero value is ready to use.
type places struct {
	lock  sync.Mutex
	known map[string]place
}

type place struct {
	host Host
	// of is what it was made of.
	of origins
}

type origins struct {
	resourceVersion  string
	snapshot, ledger uint64
}

// of returns a host, but for what depends on the cluster. What the result refers to isn't to be changed.
func (p *places) of(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, ledger *Ledger) Host {
	// The version before what it is of: what is remembered may be newer than it says, and not older.
	of := origins{resourceVersion: host.ResourceVersion, snapshot: snapshot.Version, ledger: ledger.Version(host.Name)}
	p.lock.Lock()
	known, there := p.known[host.Name]
	p.lock.Unlock()
	if there && known.of == of && snapshot.Version != 0 {
		return known.host
	}
	made := HostOf(host, snapshot, ledger.Domains(host.Name))
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.known == nil {
		p.known = map[string]place{}
	}
	p.known[host.Name] = place{host: made, of: of}
	return made
}

// keep drops what isn't of these hosts.
func (p *places) keep(hosts []infrav1.LibvirtHost) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if len(p.known) <= len(hosts) {
		return
	}
	there := map[string]bool{}
	for i := range hosts {
		there[hosts[i].Name] = true
	}
	for name := range p.known {
		if !there[name] {
			delete(p.known, name)
		}
	}
}

// newHosts knows since when hosts are being connected to for the first time since the manager began. The
// zero value is ready to use.
//
// When a manager begins, its hosts come within seconds, one after the other. Machines that were placed on
// the first of them would be crowded there, though others are empty: they wait a moment. A host that can't be
// reached holds nobody up for longer.
type newHosts struct {
	lock  sync.Mutex
	since map[string]time.Time
}

// see notes how a host is.
func (n *newHosts) see(host string, connecting bool, now time.Time) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if !connecting {
		delete(n.since, host)
		return
	}
	if n.since == nil {
		n.since = map[string]time.Time{}
	}
	if _, there := n.since[host]; !there {
		n.since[host] = now
	}
}

// wait returns for how long to wait for some hosts, each of which is waited for up to some time. 0 when
// nobody has to.
func (n *newHosts) wait(hosts []string, upTo time.Duration, now time.Time) time.Duration {
	n.lock.Lock()
	defer n.lock.Unlock()
	var longest time.Duration
	for _, host := range hosts {
		if since, there := n.since[host]; there {
			longest = max(longest, since.Add(upTo).Sub(now))
		}
	}
	return longest
}
