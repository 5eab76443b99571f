// Package exclusive chooses resources of a host that only one domain at a time can use: dedicated CPUs and PCI devices.
//
// The definitions of all domains on the host, including foreign ones, are the only record of what is in use. To
// create a machine,
//
//  1. list the domains, and choose resources that none of them has, or keep those of the own domain;
//  2. define the domain with them;
//  3. list the domains again, and start the own domain only if no other domain has any of its resources.
//
// Any number of managers may do this concurrently. If two define the same resources, the later one sees the other's
// definition in step 3, because a host processes one call after the other. So at least one of them doesn't start.
// Yields decides which one chooses again.
//
// For an active domain, only the resources of the running domain count. This provider doesn't change those in its
// definition.
package exclusive

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Resource is a part of a host that one domain at a time can use: a CPU or a PCI device.
type Resource string

// Of returns the resources of a domain.
func Of(domain hypervisor.Domain) map[Resource]bool {
	resources := map[Resource]bool{}
	for _, cpu := range domain.PinnedCPUs {
		resources[CPU(cpu)] = true
	}
	for _, address := range domain.HostDevices {
		resources[Device(address)] = true
	}
	return resources
}

const cpuPrefix = "CPU "

// CPU is a CPU of the host by its number.
func CPU(number int) Resource { return Resource(cpuPrefix + strconv.Itoa(number)) }

// Device is a PCI device of the host by its address, for example 0000:3b:00.0.
func Device(address string) Resource { return Resource(address) }

// Request requests some of a list of resources.
type Request struct {
	// Name is the field of the spec that requests the resources, for messages.
	Name string
	// From has the suitable resources, in order of preference.
	From []Resource
	// Count is the number of requested resources.
	Count int
}

// Chosen has the resources for a domain, by the names of the requests, each list in the order of Request.From.
type Chosen map[string][]Resource

// NotFreeError says that the host has too few free resources.
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

// Choose returns the resources for the domain with a UUID. domains has all domains of the host. The domain keeps its
// resources that no other domain has. Requests don't share resources. The error is a *NotFreeError.
func Choose(uuid string, requests []Request, domains []hypervisor.Domain) (Chosen, error) {
	taken, own := map[Resource]bool{}, map[Resource]bool{}
	for _, domain := range domains {
		if domain.UUID == uuid {
			own = Of(domain)
			continue
		}
		for resource := range Of(domain) {
			taken[resource] = true
		}
	}
	chosen := Chosen{}
	for _, request := range requests {
		var kept, others []Resource
		for _, resource := range request.From {
			switch {
			case taken[resource]:
			case own[resource]:
				kept = append(kept, resource)
			default:
				others = append(others, resource)
			}
		}
		free := append(kept, others...)
		if len(free) < request.Count {
			return nil, &NotFreeError{Request: request.Name, Count: request.Count, Free: len(free)}
		}
		gets := free[:request.Count]
		slices.SortFunc(gets, func(a, b Resource) int { return slices.Index(request.From, a) - slices.Index(request.From, b) })
		for _, resource := range gets {
			taken[resource] = true
		}
		chosen[request.Name] = gets
	}
	return chosen, nil
}

// Rivals returns the domains that share a resource with the domain with a UUID.
func Rivals(uuid string, domains []hypervisor.Domain) []hypervisor.Domain {
	own := map[Resource]bool{}
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
		for resource := range Of(domain) {
			if own[resource] {
				rivals = append(rivals, domain)
				break
			}
		}
	}
	return rivals
}

// Yields reports whether the inactive domain with a UUID must give up the resources that it shares with its rivals: if
// any of them is active, is foreign, or has a smaller UUID. Otherwise the rivals give them up.
func Yields(uuid string, rivals []hypervisor.Domain) bool {
	return slices.ContainsFunc(rivals, func(rival hypervisor.Domain) bool {
		return rival.State.Active() || rival.Owner == nil || rival.UUID < uuid
	})
}
