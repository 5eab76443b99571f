// Package placement chooses the host that a machine is bound to.
//
// choose is a pure function of hosts and their machines. A Ledger calls it for concurrent reconciles and prevents
// double allocation. A Scheduler reads objects and snapshots for it. Controllers only use a Scheduler.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Host is the state of a host for the namespace and cluster of a request.
type Host struct {
	// Name of the LibvirtHost.
	Name string
	// FailureDomain that the host is in. The host's name when empty.
	FailureDomain string
	// Selected reports whether the cluster's hostSelector selects the host.
	Selected bool
	// NamespaceAllowed reports whether the machine's namespace may use the host.
	NamespaceAllowed bool
	// Maintenance takes the host out of use. It may be nil.
	Maintenance *infrav1.HostMaintenance
	// Connecting says that the first connection to the host is being opened and its resources aren't known. It isn't
	// Ready then.
	Connecting bool
	// Ready is the status of the host's Ready condition.
	Ready bool
	// Message of the host's Ready condition, shown when it isn't Ready.
	Message string
	// Architecture of the host.
	Architecture infrav1.Architecture
	// Features that the host has.
	Features []string
	// Pools for disks. The first one is for disks without a pool.
	Pools []string
	// Networks that the host has, by the name that machines use.
	Networks []string
	// Full says that a machine on the host recently ran out of room, although enough should have been free.
	Full bool
	// ImageVolumes are the volumes in the pool for images.
	ImageVolumes []string
	// Room has the resources for machines, as returned by the function Room.
	Room Resources
	// Quota of the machine's namespace, or nil.
	Quota *Quota
	// Foreign has the resources of foreign domains and volumes.
	Foreign Resources
}

// choose returns the name of the best host for a machine. counted has all other machines with a host. The error is a
// *NoFitError.
//
// The best host has the fewest siblings of the same owner, then the fewest machines of the cluster, then the most
// free memory, then the first name. The order of the arguments doesn't matter.
func choose(request Request, hosts []Host, counted *tally) (string, error) {
	hosts = slices.SortedFunc(slices.Values(hosts), func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	noFit := &NoFitError{}
	var best *load
	used := map[*Quota]map[Kind]int64{}
	for i := range hosts {
		candidate := loadOf(&request.Machine, &hosts[i], counted)
		quota := hosts[i].Quota
		if used[quota] == nil {
			used[quota] = counted.usedOf(quota, request.Machine.Cluster.Namespace)
		}
		candidate.used = used[quota]
		if reason, message := unfit(request, &hosts[i], candidate); reason != "" {
			noFit.Hosts = append(noFit.Hosts, Unfit{Host: hosts[i].Name, Reason: reason, Message: message})
			continue
		}
		if best == nil || candidate.compare(best) < 0 {
			best = candidate
		}
	}
	if best == nil {
		return "", noFit
	}
	return best.host, nil
}

// Unseen returns the names of the connecting hosts that may fit a machine: nothing in their spec prevents it.
func Unseen(request Request, hosts []Host) []string {
	var names []string
	for i := range hosts {
		if !hosts[i].Connecting {
			continue
		}
		// The resources of the host aren't known yet.
		if reason, _ := unfit(request, &hosts[i], &load{}); reason == NotSeen {
			names = append(names, hosts[i].Name)
		}
	}
	return names
}

// load has the machines on a host and its free resources.
type load struct {
	host              string
	siblings, cluster int
	free              Resources
	// used has the resources that count for the quota of the machine's namespace.
	used map[Kind]int64
}

// loadOf returns the load of a host without the machine to place.
func loadOf(machine *Machine, host *Host, counted *tally) *load {
	free := Resources{}
	free.add(host.Room)
	free.subtract(host.Foreign, host.Pools)
	on := &load{host: host.Name, free: free}
	if counts, exists := counted.hosts[host.Name]; exists {
		free.subtract(counts.needs, host.Pools)
		on.cluster = counts.clusters[machine.Cluster]
		if machine.Owner != "" {
			on.siblings = counts.owners[owner{machine.Cluster, machine.Owner}]
		}
	}
	return on
}

// compare is negative if l is better. choose goes through the hosts by name, so that the first of equal hosts wins.
func (l *load) compare(other *load) int {
	memory := Resource{Kind: Memory}
	return cmp.Or(
		cmp.Compare(l.siblings, other.siblings),
		cmp.Compare(l.cluster, other.cluster),
		cmp.Compare(other.free[memory], l.free[memory]),
	)
}

// subtract subtracts needs from r. Storage without a pool counts in the first of the host's pools.
func (r Resources) subtract(needs Resources, pools []string) {
	for key, value := range onHost(needs, pools) {
		r[key] -= value
	}
}

// onHost sets the pool of storage without one.
func onHost(needs Resources, pools []string) Resources {
	named := Resources{}
	for key, value := range needs {
		if key.Kind == Disk && key.Name == "" && len(pools) > 0 {
			key.Name = pools[0]
		}
		named[key] += value
	}
	return named
}

// unfit returns why a host doesn't fit, or nothing if it does. What is known without a connection comes first.
func unfit(request Request, host *Host, on *load) (Reason, string) {
	failureDomain := cmp.Or(host.FailureDomain, host.Name)
	switch {
	case !host.Selected:
		return NotSelected, "the cluster's hostSelector doesn't select it"
	case !host.NamespaceAllowed:
		return NamespaceNotAllowed, "its identity doesn't allow the namespace"
	case host.Maintenance != nil && host.Maintenance.Reason != "":
		return InMaintenance, "in maintenance: " + host.Maintenance.Reason
	case host.Maintenance != nil:
		return InMaintenance, "in maintenance"
	case !host.Ready && !host.Connecting && host.Message != "":
		return NotReady, "not ready: " + host.Message
	case !host.Ready && !host.Connecting:
		return NotReady, "not ready"
	case request.FailureDomain != "" && request.FailureDomain != failureDomain:
		return WrongFailureDomain, fmt.Sprintf("in failure domain %s, not %s", failureDomain, request.FailureDomain)
	case host.Connecting:
		return NotSeen, "connecting"
	case request.Architecture != host.Architecture:
		return WrongArchitecture, fmt.Sprintf("has architecture %s, not %s", cmp.Or(host.Architecture, "unknown"), request.Architecture)
	}
	needs := onHost(request.Machine.Needs, host.Pools)
	if reason, message := missing(request, host, needs.pools()); reason != "" {
		return reason, message
	}
	if over := host.Quota.exceeded(needs, nil, on.used); len(over) > 0 {
		return QuotaExceeded, quotaExceeded(over)
	}
	if short := on.free.shortages(needs); len(short) > 0 {
		return NoRoom, noRoom(short)
	}
	if host.Full {
		return NoRoom, "no room (a machine on the host ran out of room, although enough should be free)"
	}
	return "", ""
}

func noRoom(short []string) string { return "no room (" + strings.Join(short, ", ") + ")" }

// missing returns the first kind of things that a host lacks for a machine with disks in pools, or nothing.
func missing(request Request, host *Host, pools []string) (Reason, string) {
	var images []string
	if request.ImageVolume != "" {
		images = []string{request.ImageVolume}
	}
	for _, kind := range []struct {
		reason          Reason
		what            string
		wanted, present []string
	}{
		{MissingFeature, "feature", request.Features, host.Features},
		{MissingPool, "storage pool", pools, host.Pools},
		{MissingImage, "image volume", images, host.ImageVolumes},
		{MissingNetwork, "network", request.Networks, host.Networks},
	} {
		lacking := slices.DeleteFunc(slices.Clone(kind.wanted), func(name string) bool { return slices.Contains(kind.present, name) })
		if slices.Contains(lacking, "") { // the host's first pool
			return kind.reason, "has no storage pool for disks"
		}
		if len(lacking) > 0 {
			return kind.reason, fmt.Sprintf("lacks %s %s", kind.what, strings.Join(lacking, ", "))
		}
	}
	return "", ""
}
