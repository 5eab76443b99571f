package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Reason is the reason why a host doesn't fit, for people, tests and metrics.
type Reason string

// The reasons, in the order in which they are checked.
const (
	// NotSelected: the cluster's hostSelector doesn't select the host.
	NotSelected Reason = "NotSelected"
	// NamespaceNotAllowed: the host's identity doesn't allow the machine's namespace.
	NamespaceNotAllowed Reason = "NamespaceNotAllowed"
	// InMaintenance: the host is taken out of use.
	InMaintenance Reason = "InMaintenance"
	// NotReady: the host can't be reached, or lacks a pool or network that its spec names.
	NotReady Reason = "NotReady"
	// WrongFailureDomain: another failure domain is required.
	WrongFailureDomain Reason = "WrongFailureDomain"
	// NotSeen: the first connection to the host is being opened, and its resources aren't known.
	NotSeen Reason = "NotSeen"
	// WrongArchitecture: another architecture is required.
	WrongArchitecture Reason = "WrongArchitecture"
	// MissingFeature: the host can't do what the machine needs.
	MissingFeature Reason = "MissingFeature"
	// MissingPool: the host lacks a storage pool.
	MissingPool Reason = "MissingPool"
	// MissingImage: the host lacks the volume that the machine starts from.
	MissingImage Reason = "MissingImage"
	// MissingNetwork: the host lacks a network.
	MissingNetwork Reason = "MissingNetwork"
	// QuotaExceeded: the machine would exceed the quota of its namespace.
	QuotaExceeded Reason = "QuotaExceeded"
	// NoRoom: the host has too few free resources.
	NoRoom Reason = "NoRoom"
)

// Unfit is a host that doesn't fit, and why.
type Unfit struct {
	// Host is the name of the host.
	Host string
	// Reason is the first reason that applies.
	Reason Reason
	// Message has the requested and the available resources.
	Message string
}

// NoFitError says that no host fits, with the reason for each.
type NoFitError struct {
	// Hosts are all hosts, sorted by name.
	Hosts []Unfit
	// Unlisted says that hosts exist that the machine's namespace may not use. They are not in Hosts.
	Unlisted bool
}

// Reasons returns the distinct reasons, for metrics.
func (e *NoFitError) Reasons() []string {
	var reasons []string
	for _, host := range e.Hosts {
		reasons = append(reasons, string(host.Reason))
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// ForNow reports whether a host may still turn out to fit, because its first connection is being opened.
func (e *NoFitError) ForNow() bool {
	return slices.ContainsFunc(e.Hosts, func(host Unfit) bool { return host.Reason == NotSeen })
}

const (
	// shownNames limits the named hosts with the same message, and shownMessages the messages with the same reason:
	// the text is for a condition.
	shownNames    = 10
	shownMessages = 5
)

// closest has the reasons in the order of the message: hosts that come closest to fitting are first. Hosts with one
// of the first usable reasons are Ready and selected.
var closest = []Reason{NoRoom, QuotaExceeded, MissingNetwork, MissingImage, MissingPool, MissingFeature, WrongArchitecture, WrongFailureDomain,
	NotSeen, NotReady, InMaintenance, NamespaceNotAllowed, NotSelected}

const usable = 8

// Error lists the hosts by their reasons on one line, Ready hosts first. Hosts with the same message share an entry.
func (e *NoFitError) Error() string {
	if len(e.Hosts) == 0 {
		return "no host fits: no LibvirtHost exists"
	}
	reasons := map[Reason][]Unfit{}
	for _, host := range e.Hosts {
		reasons[host.Reason] = append(reasons[host.Reason], host)
	}
	ready := 0
	var entries []string
	for i, reason := range closest {
		if i < usable {
			ready += len(reasons[reason])
		}
		entries = append(entries, entriesOf(reasons[reason])...)
	}
	if e.Unlisted {
		entries = append(entries, "hosts that the namespace may not use are not listed")
	}
	soFar := ""
	if e.ForNow() {
		soFar = " so far"
	}
	return fmt.Sprintf("no host fits%s (%d of %d Ready and selected): %s", soFar, ready, len(e.Hosts), strings.Join(entries, "; "))
}

// entriesOf returns an entry for each message of hosts with the same reason, and one for the number of those left out.
func entriesOf(hosts []Unfit) []string {
	var messages []string
	names := map[string][]string{}
	for _, host := range hosts {
		message := oneLine(host.Message)
		if names[message] == nil {
			messages = append(messages, message)
		}
		names[message] = append(names[message], host.Host)
	}
	var entries []string
	left := len(hosts)
	for _, message := range messages[:min(len(messages), shownMessages)] {
		entries = append(entries, listed(names[message])+": "+message)
		left -= len(names[message])
	}
	if left > 0 {
		entries = append(entries, fmt.Sprintf("%d more hosts: %s", left, hosts[0].Reason))
	}
	return entries
}

func listed(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	shown := strings.Join(names[:min(len(names), shownNames)], ", ")
	if len(names) > shownNames {
		shown += ", ..."
	}
	return fmt.Sprintf("%d hosts (%s)", len(names), shown)
}

// oneLine joins the lines of a message: a summary condition has a line "* TYPE: MESSAGE" for each condition.
func oneLine(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(strings.Replace(line, "* ", "", 1)); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ", ")
}
