package libvirtmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// candidates puts all hosts that the namespace may use into placement's words. unlisted says that there
// are others. It returns what was last seen of every host too, by name.
func (s *scope) candidates(ctx context.Context) (hosts []placement.Host, unlisted bool, snapshots map[string]fleet.Snapshot, err error) {
	list, identities, namespace := &infrav1.LibvirtHostList{}, &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, nil, fmt.Errorf("listing LibvirtHosts: %w", err)
	}
	if err := s.Client.List(ctx, identities, client.UnsafeDisableDeepCopy); err != nil {
		return nil, false, nil, fmt.Errorf("listing LibvirtClusterIdentities: %w", err)
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return nil, false, nil, fmt.Errorf("reading the namespace: %w", err)
	}
	selector, err := s.hostSelector(ctx)
	if err != nil {
		return nil, false, nil, err
	}
	if err := s.told.all(ctx, s.Reconciler); err != nil {
		return nil, false, nil, err
	}
	// Snapshots first, and machines afterwards: no domain of ours is then taken for somebody else's.
	snapshots = map[string]fleet.Snapshot{}
	for i := range list.Items {
		snapshots[list.Items[i].Name], _ = s.Hosts.Snapshot(list.Items[i].Name)
	}
	quotas := quotas(list.Items, identities.Items)
	now := time.Now()
	for i := range list.Items {
		host := &list.Items[i]
		candidate := s.places.of(host, snapshots[host.Name], s.Ledger)
		if s.WatchFilterValue != "" && !labels.HasWatchLabel(host, s.WatchFilterValue) {
			candidate.Connecting, candidate.Ready = false, false
			candidate.Message = fmt.Sprintf("without the label %s: %s it isn't one of this manager's", clusterv1.WatchLabel, s.WatchFilterValue)
		}
		s.newHosts.see(host.Name, candidate.Connecting, now)
		candidate.Full = s.full.is(host.Name)
		candidate.Selected = selector.Matches(k8slabels.Set(host.Labels))
		if ref := host.Spec.IdentityRef; ref != nil {
			candidate.Quota = quotas[ref.Name]
		}
		candidate.NamespaceAllowed = access.Host(host, identities.Items, namespace)
		if candidate.NamespaceAllowed { // the others are not to be named
			hosts = append(hosts, candidate)
		} else {
			unlisted = true
		}
	}
	s.places.keep(list.Items)
	return hosts, unlisted, snapshots, nil
}

// quotas puts the quotas of identities into placement's words, by the names of the identities.
func quotas(hosts []infrav1.LibvirtHost, identities []infrav1.LibvirtClusterIdentity) map[string]*placement.Quota {
	quotas := map[string]*placement.Quota{}
	for i := range identities {
		quota := identities[i].Spec.NamespaceQuota
		if quota == nil {
			continue
		}
		limits := map[placement.Kind]int64{}
		if quota.CPUs != nil {
			limits[placement.CPU] = int64(*quota.CPUs)
		}
		for kind, limit := range map[placement.Kind]*resource.Quantity{placement.Memory: quota.Memory, placement.Disk: quota.Storage} {
			if limit != nil {
				limits[kind] = limit.Value()
			}
		}
		quotas[identities[i].Name] = &placement.Quota{Limits: limits}
	}
	for i := range hosts {
		if ref := hosts[i].Spec.IdentityRef; ref != nil && quotas[ref.Name] != nil {
			quotas[ref.Name].Hosts = append(quotas[ref.Name].Hosts, hosts[i].Name)
		}
	}
	return quotas
}

// places remembers what hosts are in placement's words, as long as nothing changes that it was made
// of: to count what others have taken of a host, all of its domains and volumes are looked at. The zero
// value is ready to use.
type places struct {
	lock  sync.Mutex
	known map[string]place
}

type place struct {
	host placement.Host
	// of is what it was made of.
	of origins
}

type origins struct {
	resourceVersion  string
	snapshot, ledger uint64
}

// of returns a host in placement's words, but for what depends on the cluster. What the result refers to
// isn't to be changed.
func (p *places) of(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, ledger *placement.Ledger) placement.Host {
	// The version before what it is of: what is remembered may be newer than it says, and not older.
	of := origins{resourceVersion: host.ResourceVersion, snapshot: snapshot.Version, ledger: ledger.Version(host.Name)}
	p.lock.Lock()
	known, there := p.known[host.Name]
	p.lock.Unlock()
	if there && known.of == of && snapshot.Version != 0 {
		return known.host
	}
	made := fleet.PlacementHost(host, snapshot, ledger.Domains(host.Name))
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
