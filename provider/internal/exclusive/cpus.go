package exclusive

import (
	"fmt"

	"k8s.io/utils/cpuset"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// CPUs are the CPUs of a host, by whom they are for. All lists are ordered.
type CPUs struct {
	// Dedicated are those that machines can have to themselves.
	Dedicated []int
	// Shared are the others, as the kernel writes lists of CPUs. Empty when none is dedicated: then all are
	// shared, and nobody has to be kept off any.
	Shared string
	// Missing are those that the spec of the host has and the host doesn't, written in the same way.
	Missing string
}

// CPUsOf tells the CPUs of a host apart. A set that can't be read is refused by the webhook, and counts as
// none.
func CPUsOf(spec *infrav1.LibvirtHostSpec, facts hypervisor.Facts) CPUs {
	wanted, err := ReadCPUs(spec.DedicatedCPUs)
	if err != nil || wanted.IsEmpty() {
		return CPUs{}
	}
	all := cpuset.New(facts.AllCPUs()...)
	return CPUs{
		Dedicated: wanted.Intersection(all).List(),
		Shared:    all.Difference(wanted).String(),
		Missing:   wanted.Difference(all).String(),
	}
}

// ReadCPUs reads a set of CPUs such as 4-15,20. An empty text is an empty set.
func ReadCPUs(text string) (cpuset.CPUSet, error) {
	// The schema has the same limit: a long range would take much memory.
	const longest = 256
	if len(text) > longest {
		return cpuset.New(), fmt.Errorf("a set of CPUs has at most %d characters", longest)
	}
	read, err := hypervisor.ReadCPUSet(text)
	if err != nil {
		return cpuset.New(), fmt.Errorf("%q isn't a set of CPUs such as 4-15,20: %w", text, err)
	}
	return read, nil
}

// Dedicated reports whether a machine asks for CPUs of its own.
func Dedicated(spec *infrav1.LibvirtMachineSpec) bool {
	return spec.CPU.Dedicated != nil && *spec.CPU.Dedicated
}
