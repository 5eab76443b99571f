package placement

import "k8s.io/apimachinery/pkg/types"

// tally has machines and the sums of their resources on each host, so that placing a machine doesn't add up all of
// them. The zero tally is empty.
type tally struct {
	machines map[types.UID]Machine
	hosts    map[string]*counts
}

// counts has the sums for the machines on a host.
type counts struct {
	machines int
	// needs has the sum of the machines' needs. Storage without a pool is separate.
	needs Resources
	// namespaces has the needs of each namespace.
	namespaces map[string]Resources
	clusters   map[types.NamespacedName]int
	owners     map[owner]int
	domains    map[string]int
}

// owner groups sibling machines. Its name is unique in a cluster.
type owner struct {
	cluster types.NamespacedName
	name    string
}

// set adds a machine, or replaces it. It must not be changed afterwards.
func (t *tally) set(machine Machine) {
	t.remove(machine.UID)
	if t.machines == nil {
		t.machines, t.hosts = map[types.UID]Machine{}, map[string]*counts{}
	}
	t.machines[machine.UID] = machine
	on := t.hosts[machine.Host]
	if on == nil {
		on = &counts{needs: Resources{}, namespaces: map[string]Resources{}, clusters: map[types.NamespacedName]int{}, owners: map[owner]int{}, domains: map[string]int{}}
		t.hosts[machine.Host] = on
	}
	on.machines++
	on.needs.add(machine.Needs)
	if on.namespaces[machine.Cluster.Namespace] == nil {
		on.namespaces[machine.Cluster.Namespace] = Resources{}
	}
	on.namespaces[machine.Cluster.Namespace].add(machine.Needs)
	on.clusters[machine.Cluster]++
	if machine.Owner != "" {
		on.owners[owner{machine.Cluster, machine.Owner}]++
	}
	if machine.Domain != "" {
		on.domains[machine.Domain]++
	}
}

// remove removes a machine if it exists.
func (t *tally) remove(uid types.UID) {
	machine, exists := t.machines[uid]
	if !exists {
		return
	}
	delete(t.machines, uid)
	on := t.hosts[machine.Host]
	on.machines--
	if on.machines == 0 {
		delete(t.hosts, machine.Host)
		return
	}
	for key, value := range machine.Needs {
		less(on.needs, key, value)
		less(on.namespaces[machine.Cluster.Namespace], key, value)
	}
	less(on.clusters, machine.Cluster, 1)
	if machine.Owner != "" {
		less(on.owners, owner{machine.Cluster, machine.Owner}, 1)
	}
	if machine.Domain != "" {
		less(on.domains, machine.Domain, 1)
	}
}

// less subtracts from an entry. Entries that reach zero are removed.
func less[K comparable, V int | int64](amounts map[K]V, key K, by V) {
	if amounts[key] -= by; amounts[key] == 0 {
		delete(amounts, key)
	}
}
