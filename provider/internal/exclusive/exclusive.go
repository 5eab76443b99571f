// Package exclusive chooses what only one domain of a host can have at a time: CPUs that machines have to
// themselves, and PCI devices.
//
// The definitions of all domains on the host are the record of what is taken, those that others made too:
// there is no other list that could be lost or differ. Whoever makes a machine
//
//  1. lists the domains, and chooses from what none of them has, or keeps what its own has;
//  2. defines its domain with that;
//  3. lists the domains once more, and starts its own only if no other has anything of it.
//
// Two managers, or any number of them, may do so at once without knowing of each other. Of two that have
// defined the same, the later one sees the other's definition in step 3, because a host carries out one
// call after the other: at least one of them doesn't start. Which of them chooses again is told by
// Yields, so that not both wait, nor both go on choosing for ever.
//
// Only what a domain has while it is active is seen of one that is active. Its definition may have been
// given something else meanwhile; this provider doesn't do that.
package exclusive

import (
	"fmt"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Kind is a sort of thing.
type Kind string

// The kinds of things.
const (
	// KindCPU is CPUs of the host, named by their numbers.
	KindCPU Kind = "CPU"
	// KindDevice is PCI devices of the host, named by their addresses, for example 0000:3b:00.0.
	KindDevice Kind = "device"
)

// Thing is something of a host that one domain at a time can have.
type Thing struct {
	// Kind of the thing, and its Name among those of its kind.
	Kind Kind
	Name string
}

// Held returns what a domain has.
func Held(domain hypervisor.Domain) map[Thing]bool {
	held := map[Thing]bool{}
	for _, cpu := range domain.PinnedCPUs {
		held[CPU(cpu)] = true
	}
	for _, address := range domain.HostDevices {
		held[Device(address)] = true
	}
	return held
}

// CPU is a CPU of the host by its number.
func CPU(number int) Thing { return Thing{Kind: KindCPU, Name: fmt.Sprint(number)} }

// Device is a PCI device of the host by its address.
func Device(address string) Thing { return Thing{Kind: KindDevice, Name: address} }

// Request asks for some of a list of things.
type Request struct {
	// Name is the field of the spec that asks, for messages.
	Name string
	// From are the things that will do, in the order in which they are taken.
	From []Thing
	// Count is how many of them are asked for.
	Count int
}

// NotFreeError says that there aren't as many things free on the host as are asked for.
type NotFreeError struct {
	// Request is the name of the request.
	Request string
	// Count is how many are asked for, and Free how many there are.
	Count, Free int
}

// Error says it in words.
func (e *NotFreeError) Error() string {
	return fmt.Sprintf("%s: %d needed, and %d are free", e.Request, e.Count, e.Free)
}

// Choose returns what the domain with a UUID gets, by the names of the requests, each list in the order of
// Request.From. domains are all of the host. What the domain has already and no other one has it keeps.
// Nothing is given to two requests. The error is a *NotFreeError.
func Choose(uuid string, requests []Request, domains []hypervisor.Domain) (map[string][]Thing, error) {
	taken, own := map[Thing]bool{}, map[Thing]bool{}
	for _, domain := range domains {
		if domain.UUID == uuid {
			own = Held(domain)
			continue
		}
		for thing := range Held(domain) {
			taken[thing] = true
		}
	}
	chosen := map[string][]Thing{}
	for _, request := range requests {
		var kept, others []Thing
		for _, thing := range request.From {
			switch {
			case taken[thing]:
			case own[thing]:
				kept = append(kept, thing)
			default:
				others = append(others, thing)
			}
		}
		free := append(kept, others...)
		if len(free) < request.Count {
			return nil, &NotFreeError{Request: request.Name, Count: request.Count, Free: len(free)}
		}
		gets := free[:request.Count]
		slices.SortFunc(gets, func(a, b Thing) int { return slices.Index(request.From, a) - slices.Index(request.From, b) })
		for _, thing := range gets {
			taken[thing] = true
		}
		chosen[request.Name] = gets
	}
	return chosen, nil
}

// Rivals returns the domains that have something which the one with a UUID has, too.
func Rivals(uuid string, domains []hypervisor.Domain) []hypervisor.Domain {
	own := map[Thing]bool{}
	for _, domain := range domains {
		if domain.UUID == uuid {
			own = Held(domain)
		}
	}
	var rivals []hypervisor.Domain
	for _, domain := range domains {
		if domain.UUID == uuid {
			continue
		}
		for thing := range Held(domain) {
			if own[thing] {
				rivals = append(rivals, domain)
				break
			}
		}
	}
	return rivals
}

// Yields says whether the domain with a UUID, which isn't active, has to leave to its rivals what they have,
// too: when any of them is active, isn't of this provider and so doesn't give way, or has a UUID before its
// own. Otherwise they leave it, and it only has to wait.
func Yields(uuid string, rivals []hypervisor.Domain) bool {
	return slices.ContainsFunc(rivals, func(rival hypervisor.Domain) bool {
		return rival.State.Active() || rival.Owner == nil || rival.UUID < uuid
	})
}
