// Package contract holds the rules tables of Cluster API's contract pages as data, and fills them in
// for a release: each rule is checked on the schemas of the custom resource definitions that play
// the part the rule is about.
package contract

import (
	"slices"
	"strings"
)

// Resource is the part that a kind plays in the contract.
type Resource string

// The resources that have a page with rules.
const (
	InfraCluster     Resource = "InfraCluster"
	InfraMachine     Resource = "InfraMachine"
	InfraMachinePool Resource = "InfraMachinePool"
	BootstrapConfig  Resource = "BootstrapConfig"
	ControlPlane     Resource = "ControlPlane"
	IPAM             Resource = "IPAM"
)

// State says how a release stands to a rule.
type State string

// The states.
const (
	// Present is there, and as the rule wants it.
	Present State = "there"
	// Missing is not there. Only a mandatory rule is broken by it.
	Missing State = "missing"
	// Wrong is there, and not as the rule wants it.
	Wrong State = "wrong"
	// NotApplicable is a rule that the release's contract version or kind has nothing to do with.
	NotApplicable State = "not applicable"
	// NotVisible is a rule about what a controller does, which no file of a release shows.
	NotVisible State = "not visible in a release"
)

// Weight says what comes of a problem.
type Weight string

// The weights.
const (
	// Broken keeps Cluster API from working with the kind as the rule has it.
	Broken Weight = "broken"
	// Lax lets values through that Cluster API can't take over, or is merged in another way.
	Lax Weight = "lax"
	// Deprecated works with this version of Cluster API, and not for ever.
	Deprecated Weight = "deprecated"
)

// Problem is one thing in a custom resource definition that is not as a rule wants it.
type Problem struct {
	// CRD is the definition, or nil where there is none at all.
	CRD *CRD
	// Path leads to the place in the definition's document, as manifest.Document.Place takes it.
	Path []any
	// Reason says what is wrong and what comes of it.
	Reason string
	// Fix says what to do, where it is not the rule's own advice.
	Fix    string
	Weight Weight
}

// Verdict is what a rule says of a kind.
type Verdict struct {
	State State
	// Detail says why, where there is no problem to tell of it.
	Detail   string
	Problems []Problem
}

// Rule is one row of a rules table.
type Rule struct {
	// ID names the rule for ever, e.g. infra-machine-provider-id.
	ID       string
	Resource Resource
	// Name is the row's text.
	Name string
	// Mandatory is the row's Yes or No.
	Mandatory bool
	// Note is the row's note: when an optional rule becomes mandatory.
	Note string
	// Title says in a line what is looked for; "" where the rule is not visible in a release.
	Title string
	// Fix says what to do where the rule is broken.
	Fix string
	// Hidden says what the rule is about, where no release shows it.
	Hidden string

	verdict func(*Implementation) Verdict
}

// Visible says whether a release can show how it stands to the rule.
func (r Rule) Visible() bool { return r.Hidden == "" }

// Page is the file name of the contract page, without its extension.
func (r Rule) Page() string { return pageOf[r.Resource] }

// Heading is the section of the page that explains the rule.
func (r Rule) Heading() string {
	if r.Resource == IPAM {
		return ipamHeading
	}
	return r.Text()
}

// Text returns the row's text with the space that one of them lacks and its section has.
func (r Rule) Text() string { return strings.ReplaceAll(r.Name, "`field", "` field") }

// Advice says what to do about a problem that the rule found.
func (r Rule) Advice(p Problem) string {
	if p.Fix != "" {
		return p.Fix
	}
	return r.Fix
}

// Check holds a kind against the rule.
func (r Rule) Check(i *Implementation) Verdict {
	switch {
	case !r.Visible():
		return Verdict{State: NotVisible, Detail: r.Hidden}
	case i.Resource != r.Resource:
		return Verdict{State: NotApplicable}
	}
	return r.verdict(i)
}

// pageOf has the contract page of each resource.
var pageOf = map[Resource]string{
	InfraCluster:     "infra-cluster",
	InfraMachine:     "infra-machine",
	InfraMachinePool: "infra-machinepool",
	BootstrapConfig:  "bootstrap-config",
	ControlPlane:     "control-plane",
	IPAM:             "ipam",
}

// Rules returns all rules in the order of the pages and their tables.
func Rules() []Rule {
	return slices.Concat(infraCluster, infraMachine, infraMachinePool, bootstrapConfig, controlPlane, ipam)
}
