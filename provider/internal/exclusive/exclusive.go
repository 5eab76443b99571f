// Package exclusive chooses things of a host that only one domain at a time can use: dedicated CPUs and PCI devices.
//
// The definitions of all domains on the host, including foreign ones, are the only record of what is in use. To
// create a machine,
//
//  1. list the domains, and choose things that none of them has, or keep those of the own domain;
//  2. define the domain with them;
//  3. list the domains again, and start the own domain only if no other domain has any of its things.
//
// Any number of managers may do this concurrently. If two define the same things, the later one sees the other's
// definition in step 3, because a host processes one call after the other. So at least one of them doesn't start.
// Yields decides which one chooses again.
//
// For an active domain, only the things of the running domain count. This provider doesn't change those in its
// definition.
package exclusive

import (
	"fmt"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Kind is a kind of thing.
type Kind string

// The kinds of things.
const (
	// KindCPU is CPUs of the host, named by their numbers.
	KindCPU Kind = "CPU"
	// KindDevice is PCI devices of the host, named by their addresses, for example 0000:3b:00.0.
	KindDevice Kind = "device"
)

// Thing is a part of a host that one domain at a time can use.
type Thing struct {
	// Kind of the thing, and its Name among those of its kind.
	Kind Kind
	Name string
}

// Of returns the things of a domain.
func Of(domain hypervisor.Domain) map[Thing]bool {
	things := map[Thing]bool{}
	for _, cpu := range domain.PinnedCPUs {
		things[CPU(cpu)] = true
	}
	for _, address := range domain.HostDevices {
		things[Device(address)] = true
	}
	return things
}

// CPU is a CPU of the host by its number.
func CPU(number int) Thing { return Thing{Kind: KindCPU, Name: fmt.Sprint(number)} }

// Device is a PCI device of the host by its address.
func Device(address string) Thing { return Thing{Kind: KindDevice, Name: address} }

// Request requests some of a list of things.
type Request struct {
	// Name is the field of the spec that requests the things, for messages.
	Name string
	// From has the suitable things, in order of preference.
	From []Thing
	// Count is the number of requested things.
	Count int
}

// Chosen has the things for a domain, by the names of the requests, each list in the order of Request.From.
type Chosen map[string][]Thing

// NotFreeError says that the host has too few free things.
type NotFreeError struct {
	// Request is the name of the request.
	Request string
	// Count is the requested number, and Free the available one.
	Count, Free int
}

// Error names the request and both numbers.
func (e *NotFreeError) Error() string {
	return fmt.Sprintf("%s: %d needed, and %d are free", e.Request, e.Count, e.Free)
}

// Choose returns the things for the domain with a UUID. domains has all domains of the host. The domain keeps its
// things that no other domain has. Requests don't share things. The error is a *NotFreeError.
func Choose(uuid string, requests []Request, domains []hypervisor.Domain) (Chosen, error) {
	taken, own := map[Thing]bool{}, map[Thing]bool{}
	for _, domain := range domains {
		if domain.UUID == uuid {
			own = Of(domain)
			continue
		}
		for thing := range Of(domain) {
			taken[thing] = true
		}
	}
	chosen := Chosen{}
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

// Rivals returns the domains that share a thing with the domain with a UUID.
func Rivals(uuid string, domains []hypervisor.Domain) []hypervisor.Domain {
	own := map[Thing]bool{}
	for _, domain := range domains {
		if domain.UUID == uuid {
			own = Of(domain)
		}
	}
	var rivals []hypervisor.Domain
	for _, domain := range domains {
		if domain.UUID == uuid {
			continue
		}
		for thing := range Of(domain) {
			if own[thing] {
				rivals = append(rivals, domain)
				break
			}
		}
	}
	return rivals
}

// Yields reports whether the inactive domain with a UUID must give up the things that it shares with its rivals: if
// any of them is active, is foreign, or has a smaller UUID. Otherwise the rivals give them up.
func Yields(uuid string, rivals []hypervisor.Domain) bool {
	return slices.ContainsFunc(rivals, func(rival hypervisor.Domain) bool {
		return rival.State.Active() || rival.Owner == nil || rival.UUID < uuid
	})
}
