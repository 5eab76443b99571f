package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Reason says why a host doesn't fit. It is for people, tests and metrics.
type Reason string

// The reasons, in the order in which they are looked at.
const (
	// NotSelected: the cluster's hostSelector doesn't select the host.
	NotSelected Reason = "NotSelected"
	// NamespaceNotAllowed: the host's identity doesn't allow the machine's namespace.
	NamespaceNotAllowed Reason = "NamespaceNotAllowed"
	// InMaintenance: the host is taken out of use.
	InMaintenance Reason = "InMaintenance"
	// NotReady: the host can't be reached, or lacks a pool or network that its spec names.
	NotReady Reason = "NotReady"
	// WrongFailureDomain: another failure domain is asked for.
	WrongFailureDomain Reason = "WrongFailureDomain"
	// NotSeen: the first try to connect to the host hasn't ended, so that nothing more is known of it.
	NotSeen Reason = "NotSeen"
	// WrongArchitecture: another architecture is asked for.
	WrongArchitecture Reason = "WrongArchitecture"
	// MissingFeature: the host can't do what the machine needs.
	MissingFeature Reason = "MissingFeature"
	// MissingPool: the host lacks a storage pool.
	MissingPool Reason = "MissingPool"
	// MissingImage: the host lacks the volume that the machine starts from.
	MissingImage Reason = "MissingImage"
	// MissingNetwork: the host lacks a network.
	MissingNetwork Reason = "MissingNetwork"
	// QuotaExceeded: the machine's namespace has no more left of its quota on the host and others.
	QuotaExceeded Reason = "QuotaExceeded"
	// NoRoom: what is free on the host isn't enough.
	NoRoom Reason = "NoRoom"
)

// Unfit is a host that doesn't fit, and why.
type Unfit struct {
	// Host is the name of the host.
	Host string
	// Reason is the first one for which it doesn't fit.
	Reason Reason
	// Message says it in words, with what is asked for and what is there.
	Message string
}

// NoFitError says that no host fits, with the reason for each.
type NoFitError struct {
	// Hosts are all hosts, sorted by name.
	Hosts []Unfit
}

// ForNow says whether a host may yet turn out to fit: the first try to connect to it hasn't ended.
func (e *NoFitError) ForNow() bool {
	return slices.ContainsFunc(e.Hosts, func(host Unfit) bool { return host.Reason == NotSeen })
}

// shownHosts is how many hosts a message has at most: it ends up in a condition.
const shownHosts = 20

// Error lists the reason for each host, for the first 20 of them by name.
func (e *NoFitError) Error() string {
	if len(e.Hosts) == 0 {
		return "no host fits: there is no LibvirtHost"
	}
	var reasons []string
	for _, host := range e.Hosts[:min(len(e.Hosts), shownHosts)] {
		reasons = append(reasons, fmt.Sprintf("%s: %s", host.Host, host.Message))
	}
	if rest := len(e.Hosts) - shownHosts; rest > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", rest))
	}
	if e.ForNow() {
		return "no host fits so far: " + strings.Join(reasons, "; ")
	}
	return "no host fits: " + strings.Join(reasons, "; ")
}
