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
	// Unlisted says that there are hosts which the machine's namespace may not use. They are not in Hosts.
	Unlisted bool
}

// Reasons returns the reasons for which hosts don't fit, each once, for metrics.
func (e *NoFitError) Reasons() []string {
	var reasons []string
	for _, host := range e.Hosts {
		reasons = append(reasons, string(host.Reason))
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// ForNow says whether a host may yet turn out to fit: the first try to connect to it hasn't ended.
func (e *NoFitError) ForNow() bool {
	return slices.ContainsFunc(e.Hosts, func(host Unfit) bool { return host.Reason == NotSeen })
}

const (
	// shownNames is how many hosts with the same message are named, and shownMessages how many messages are
	// shown of those with the same reason: the text ends up in a condition.
	shownNames    = 10
	shownMessages = 5
)

// closest are the reasons in the order in which they are shown: those of hosts that come closest to fitting first.
// Hosts with one of the first usable reasons are Ready, and the cluster selects them.
var closest = []Reason{NoRoom, QuotaExceeded, MissingNetwork, MissingImage, MissingPool, MissingFeature, WrongArchitecture, WrongFailureDomain,
	NotSeen, NotReady, InMaintenance, NamespaceNotAllowed, NotSelected}

const usable = 8

// Error lists the hosts by the reason for which they don't fit, Ready hosts first. Hosts with the same message share
// an entry, with their number. The text has one line.
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

// oneLine joins the lines of a message: a condition that sums up others has a line "* TYPE: MESSAGE" for each.
func oneLine(message string) string {
	var lines []string
	for line := range strings.Lines(message) {
		if line = strings.TrimSpace(strings.Replace(line, "* ", "", 1)); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ", ")
}
