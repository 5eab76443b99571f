package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
)

// Kind is a kind of resource.
type Kind string

// The kinds of resources, with their units.
const (
	// CPU is virtual CPUs, by number. Its resource has no name.
	CPU Kind = "CPU"
	// DedicatedCPU is CPUs for exclusive use, by number. Its resource has no name.
	DedicatedCPU Kind = "dedicated CPU"
	// Memory is memory in bytes, without huge pages. Its resource has no name.
	Memory Kind = "memory"
	// Hugepages is memory in huge pages, in bytes, named by the size of a page.
	Hugepages Kind = "huge pages"
	// Disk is storage in bytes, named by the pool. Without a name it is in the host's default pool.
	Disk Kind = "disk"
	// Device is PCI devices, by number, named by vendor and product: 10de:20b5.
	Device Kind = "device"
)

// Resource is a limited resource of a host.
type Resource struct {
	// Kind of the resource, which has its unit.
	Kind Kind
	// Name distinguishes resources of one kind.
	Name string
}

// String returns the resource in words, for messages.
func (r Resource) String() string {
	switch r.Kind {
	case Hugepages:
		return fmt.Sprintf("huge pages of %s", r.Name)
	case Disk:
		return fmt.Sprintf("storage in pool %s", r.Name)
	case Device:
		return fmt.Sprintf("devices %s", r.Name)
	case CPU:
		return "CPUs"
	case DedicatedCPU:
		return "dedicated CPUs"
	}
	return string(r.Kind)
}

// isCounted reports whether amounts of the resource are not in bytes.
func (r Resource) isCounted() bool {
	return r.Kind == CPU || r.Kind == DedicatedCPU || r.Kind == Device
}

// compared formats amounts in one unit: available is rounded down and needed up, so that a shortage stays visible.
func (r Resource) compared(available int64, needed ...int64) []string {
	amounts := append([]int64{available}, needed...)
	unit := bytesize.UnitFor(amounts...)
	words := make([]string, len(amounts))
	for i, amount := range amounts {
		switch {
		case r.isCounted():
			words[i] = fmt.Sprint(amount)
		case i == 0:
			words[i] = unit.Down(amount)
		default:
			words[i] = unit.Up(amount)
		}
	}
	return words
}

// Resources has amounts of resources, in the units of their kinds. A missing amount is zero.
type Resources map[Resource]int64

// add adds other to r.
func (r Resources) add(other Resources) {
	for key, value := range other {
		r[key] += value
	}
}

// covers reports whether r has at least the amounts in needs.
func (r Resources) covers(needs Resources) bool {
	for key, value := range needs {
		if r[key] < value {
			return false
		}
	}
	return true
}

// pools returns the names of the storage pools, sorted.
func (r Resources) pools() []string {
	var pools []string
	for key := range r {
		if key.Kind == Disk {
			pools = append(pools, key.Name)
		}
	}
	slices.Sort(pools)
	return pools
}

// shortages lists the resources of which r has less than needs, sorted.
func (r Resources) shortages(needs Resources) []string {
	var short []string
	for key, value := range needs {
		if value > 0 && r[key] < value {
			amounts := key.compared(max(r[key], 0), value)
			short = append(short, fmt.Sprintf("%s: %s needed, %s free", key, amounts[1], amounts[0]))
		}
	}
	slices.Sort(short)
	return short
}

// Room returns the resources of a host for machines: its capacity without reservations, multiplied by the overcommit.
// Huge pages, dedicated CPUs and devices have neither, and storage has no overcommit. Only storage pools in the spec
// are included. No amount is negative.
func Room(capacity Resources, spec *infrav1.LibvirtHostSpec) Resources {
	room := maps.Clone(capacity)
	if room == nil {
		room = Resources{}
	}
	cpus := capacity[Resource{Kind: CPU}] - int64(ptr.Deref(spec.Reserved.CPUs, 0))
	room[Resource{Kind: CPU}] = overcommit(cpus, spec.Overcommit.CPUPercent)
	room[Resource{Kind: Memory}] = overcommit(capacity[Resource{Kind: Memory}]-bytes(spec.Reserved.Memory), spec.Overcommit.MemoryPercent)
	for _, pool := range capacity.pools() {
		key := Resource{Kind: Disk, Name: pool}
		if !slices.Contains(spec.StoragePools.Disks, pool) {
			delete(room, key)
			continue
		}
		room[key] = max(capacity[key]-bytes(spec.Reserved.Storage), 0)
	}
	return room
}

// overcommit returns percent of value, or value if percent is 0.
func overcommit(value int64, percent int32) int64 {
	if percent == 0 {
		percent = 100
	}
	value = max(value, 0)
	// In two parts, so that the product can't overflow.
	return value/100*int64(percent) + value%100*int64(percent)/100
}

func bytes(quantity *resource.Quantity) int64 {
	if quantity == nil {
		return 0
	}
	return quantity.Value()
}

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
		if on, exists := t.hosts[host]; exists {
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
