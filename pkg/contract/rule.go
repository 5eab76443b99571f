// Package contract holds the rules tables of Cluster API's contract pages as data, and fills them in
// for a release: each rule is checked on the schemas of the custom resource definitions that play
// the part the rule is about.
package contract

import (
	"cmp"
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
	// Present is what exists as the rule asks for it.
	Present State = "there"
	// Missing is what does not exist. Only a mandatory rule is broken by it.
	Missing State = "missing"
	// Wrong is what exists otherwise than the rule asks for it.
	Wrong State = "wrong"
	// NotApplicable is a rule that the release's contract version or kind has nothing to do with.
	NotApplicable State = "not applicable"
	// NotVisible is a rule about what a controller does, which no file of a release shows.
	NotVisible State = "not visible in a release"
)

// Weight says what a problem causes.
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

// Problem is one thing in a custom resource definition that breaks a rule.
type Problem struct {
	// CRD is the definition, or nil where the release has none.
	CRD *CRD
	// Path leads to the place in the definition's document, as manifest.Document.Place takes it.
	Path []any
	// Reason says what is wrong and what it causes.
	Reason string
	// Fix says what to do.
	Fix    string
	Weight Weight
}

// Verdict is what a rule says of a kind.
type Verdict struct {
	State State `json:"state"`
	// Detail says why, where no problem does.
	Detail string `json:"detail,omitempty"`
	// Problems are those of a mandatory rule, or of what an optional one is about: it may be missing.
	Problems []Problem `json:"problems,omitempty"`
}

// Rule is one row of a rules table. One of its last four fields says what the rule is about.
type Rule struct {
	// ID names the rule for ever, e.g. infra-machine-provider-id.
	ID       string   `json:"id"`
	Resource Resource `json:"-"`
	// Page is the file name of the contract page, without its extension.
	Page string `json:"-"`
	// Name is the row's text.
	Name string `json:"rule"`
	// Mandatory is the row's Yes or No.
	Mandatory bool `json:"mandatory"`
	// Note is the row's note: when an optional rule becomes mandatory.
	Note string `json:"note,omitempty"`
	// Title says in a line what is looked for; "" where the rule is not visible in a release.
	Title string `json:"-"`
	// Fix says what to do where the rule is broken.
	Fix string `json:"-"`
	// Hidden says what the rule is about, where no release shows it.
	Hidden string `json:"-"`

	// field is a field of the kind.
	field fieldRule
	// fields judges several fields of the kind.
	fields func(*Implementation) Verdict
	// each judges the definition of the kind, and that of its template.
	each func(*CRD) []Problem
	// definitions judges which definitions there are.
	definitions func(*Implementation) Verdict
}

// Visible says whether a release can show how it stands to the rule.
func (r Rule) Visible() bool { return r.Hidden == "" }

// Heading is the section of the page that explains the rule.
func (r Rule) Heading() string {
	if r.Resource == IPAM {
		return "Data Types"
	}
	return r.Text()
}

// Text returns the row's text with the space that one of them lacks and its section has.
func (r Rule) Text() string { return strings.ReplaceAll(r.Name, "`field", "` field") }

// Check judges a kind by the rule.
func (r Rule) Check(i *Implementation) Verdict {
	v := r.judge(i)
	if v.State == Missing && !r.Mandatory {
		v.Problems = nil
	}
	for k := range v.Problems {
		v.Problems[k].Fix = cmp.Or(v.Problems[k].Fix, r.Fix)
	}
	return v
}

// judge returns the verdict without the rule's own advice.
func (r Rule) judge(i *Implementation) Verdict {
	switch {
	case !r.Visible():
		return Verdict{State: NotVisible, Detail: r.Hidden}
	case i.Resource != r.Resource:
		return Verdict{State: NotApplicable}
	case r.definitions != nil:
		return r.definitions(i)
	case i.CRD == nil:
		return Verdict{State: NotApplicable, Detail: "there is no such kind"}
	case r.fields != nil:
		return r.fields(i)
	case r.each != nil:
		problems := r.each(i.CRD)
		if i.Template != nil {
			problems = append(problems, r.each(i.Template)...)
		}
		return verdictOf(problems)
	}
	return r.field.judge(i)
}

// verdictOf returns the verdict on something that exists.
func verdictOf(problems []Problem) Verdict {
	v := Verdict{State: Present, Problems: problems}
	for _, p := range problems {
		if p.Weight != Deprecated {
			v.State = Wrong
		}
	}
	return v
}
