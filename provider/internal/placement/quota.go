package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Quota limits the resources of the machines of one namespace on the hosts of an identity. All of these hosts share
// one Quota.
type Quota struct {
	// Hosts are the names of the hosts.
	Hosts []string
	// Limits has the maximum amounts of CPU, Memory and Disk, by kind. Missing kinds have no limit.
	Limits map[Kind]int64
}

// quotasOf returns the quotas of identities, by the names of the identities.
func quotasOf(hosts []infrav1.LibvirtHost, identities []infrav1.LibvirtClusterIdentity) map[string]*Quota {
	quotas := map[string]*Quota{}
	for i := range identities {
		quota := identities[i].Spec.NamespaceQuota
		if quota == nil {
			continue
		}
		limits := map[Kind]int64{}
		if quota.CPUs != nil {
			limits[CPU] = int64(*quota.CPUs)
		}
		for kind, limit := range map[Kind]*resource.Quantity{Memory: quota.Memory, Disk: quota.Storage} {
			if limit != nil {
				limits[kind] = limit.Value()
			}
		}
		quotas[identities[i].Name] = &Quota{Limits: limits}
	}
	for i := range hosts {
		if ref := hosts[i].Spec.IdentityRef; ref != nil && quotas[ref.Name] != nil {
			quotas[ref.Name].Hosts = append(quotas[ref.Name].Hosts, hosts[i].Name)
		}
	}
	return quotas
}

// sort returns the kind whose limit applies to a resource: dedicated CPUs count as CPUs, and huge pages as memory.
func (r Resource) sort() Kind {
	switch r.Kind {
	case DedicatedCPU:
		return CPU
	case Hugepages:
		return Memory
	}
	return r.Kind
}

// bySort sums resources by the kinds of their limits.
func (r Resources) bySort() map[Kind]int64 {
	sums := map[Kind]int64{}
	for key, value := range r {
		sums[key.sort()] += value
	}
	return sums
}

// usedOf returns the resources of a namespace's machines on the hosts of a quota.
func (t *tally) usedOf(quota *Quota, namespace string) map[Kind]int64 {
	used := map[Kind]int64{}
	if quota == nil {
		return used
	}
	for _, host := range quota.Hosts {
		if on, there := t.hosts[host]; there {
			for kind, value := range on.namespaces[namespace].bySort() {
				used[kind] += value
			}
		}
	}
	return used
}

// exceeded lists the limits that needs and used exceed together, sorted. A resource that doesn't grow from has to
// needs isn't checked.
func (q *Quota) exceeded(needs, has Resources, used map[Kind]int64) []string {
	if q == nil {
		return nil
	}
	wants, had := needs.bySort(), has.bySort()
	var over []string
	for kind, limit := range q.Limits {
		if wants[kind] > had[kind] && used[kind]+wants[kind] > limit {
			of := Resource{Kind: kind}
			name := of.String()
			if kind == Disk {
				name = "storage"
			}
			amounts := of.compared(limit, used[kind], wants[kind])
			over = append(over, fmt.Sprintf("%s: %s allowed, %s used, %s needed", name, amounts[0], amounts[1], amounts[2]))
		}
	}
	slices.Sort(over)
	return over
}

// quotaExceeded returns the message for exceeded limits.
func quotaExceeded(over []string) string {
	return "exceeds the namespace's quota on the hosts with its identity (" + strings.Join(over, "; ") + ")"
}
