package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Quota limits what the machines of one namespace may take on some hosts together. It is that of an identity, and
// one value is shared by all of its hosts.
type Quota struct {
	// Hosts are the names of the hosts.
	Hosts []string
	// Limits are amounts of CPU, Memory and Disk, each of all resources that are of its sort. What isn't in it has no
	// limit.
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

// sort is the kind in whose limit a resource counts: dedicated CPUs are CPUs, and huge pages memory.
func (r Resource) sort() Kind {
	switch r.Kind {
	case DedicatedCPU:
		return CPU
	case Hugepages:
		return Memory
	}
	return r.Kind
}

// bySort adds up resources by the kinds in whose limits they count.
func (r Resources) bySort() map[Kind]int64 {
	sums := map[Kind]int64{}
	for key, value := range r {
		sums[key.sort()] += value
	}
	return sums
}

// usedOf is what the machines of a namespace take on the hosts of a quota.
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

// exceeded lists which limits needs exceed with what is used already, sorted. Of what isn't in needs, or is no more
// than the machine has, nothing is asked.
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

// quotaExceeded says so in words.
func quotaExceeded(over []string) string {
	return "exceeds the namespace's quota on the hosts with its identity (" + strings.Join(over, "; ") + ")"
}
