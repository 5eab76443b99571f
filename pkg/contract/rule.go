// Package contract holds the rules tables of Cluster API's contract pages as data, and fills them in for a release:
// each rule is checked on the schemas of the CRDs with the rule's role.
package contract

import (
	"cmp"
	"strings"
)

// Resource is the role of a kind in the contract.
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

// State is the state of a release for a rule.
type State string

// The states.
const (
	// Present means that the field or kind exists as the rule requires it.
	Present State = "there"
	// Missing means that it does not exist, which breaks only a mandatory rule.
	Missing State = "missing"
	// Wrong means that it exists in another form than the rule requires.
	Wrong State = "wrong"
	// NotApplicable means that the rule does not apply to the release's contract version or kind.
	NotApplicable State = "not applicable"
	// NotVisible means that the rule is about the behaviour of a controller, which no file of a release shows.
	NotVisible State = "not visible in a release"
)

// Weight is the consequence of a problem.
type Weight string

// The weights.
const (
	// Broken prevents Cluster API from working with the kind.
	Broken Weight = "broken"
	// Lax allows values that Cluster API can't copy, or merges a list in another way.
	Lax Weight = "lax"
	// Deprecated works with this version of Cluster API, but not with all later ones.
	Deprecated Weight = "deprecated"
)

// Problem is one defect in a CRD that breaks a rule.
type Problem struct {
	// CRD is the definition, or nil if the release has none.
	CRD *CRD
	// Path leads to the place in the CRD's document, in the form of manifest.Document.Place.
	Path []any
	// Reason says what is wrong and what it causes.
	Reason string
	// Fix says what to do.
	Fix    string
	Weight Weight
}

// Verdict is the result of a rule for a kind.
type Verdict struct {
	State State `json:"state"`
	// Detail is the reason, if no problem gives it.
	Detail string `json:"detail,omitempty"`
	// Problems are those of a mandatory rule, or of an existing field of an optional one.
	Problems []Problem `json:"problems,omitempty"`
}

// Rule is one row of a rules table. One of its last four fields judges it.
type Rule struct {
	// ID names the rule and never changes, e.g. infra-machine-provider-id.
	ID       string   `json:"id"`
	Resource Resource `json:"-"`
	// Page is the file name of the contract page, without its extension.
	Page string `json:"-"`
	// Name is the row's text.
	Name string `json:"rule"`
	// Mandatory is the row's Yes or No.
	Mandatory bool `json:"mandatory"`
	// Note is the row's note: the condition under which an optional rule is mandatory.
	Note string `json:"note,omitempty"`
	// Title describes the rule on one line; "" if it is not visible in a release.
	Title string `json:"-"`
	// Fix says how to follow a broken rule.
	Fix string `json:"-"`
	// Hidden describes a rule that a release does not show.
	Hidden string `json:"-"`

	// field is a field of the kind.
	field fieldRule
	// fields judges several fields of the kind.
	fields func(*Implementation) Verdict
	// each judges the CRD of the kind, and that of its template.
	each func(*CRD) []Problem
	// definitions judges which CRDs exist.
	definitions func(*Implementation) Verdict
}

// Visible reports whether a release shows the state of the rule.
func (r Rule) Visible() bool { return r.Hidden == "" }

// Heading is the section of the page that explains the rule.
func (r Rule) Heading() string {
	if r.Resource == IPAM {
		return "Data Types"
	}
	return r.Text()
}

// Text returns the row's text, with the space that one row lacks compared with its section.
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

// judge returns the verdict without the rule's advice.
func (r Rule) judge(i *Implementation) Verdict {
	switch {
	case !r.Visible():
		return Verdict{State: NotVisible, Detail: r.Hidden}
	case i.Resource != r.Resource:
		return Verdict{State: NotApplicable}
	case r.definitions != nil:
		return r.definitions(i)
	case i.CRD == nil:
		return Verdict{State: NotApplicable, Detail: "the provider has no such kind"}
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

// verdictOf returns the verdict for an existing field or kind.
func verdictOf(problems []Problem) Verdict { return Verdict{}.with(problems) }

// with returns the verdict for an existing field or kind with more problems.
func (v Verdict) with(problems []Problem) Verdict {
	v.State, v.Problems = Present, append(v.Problems, problems...)
	for _, p := range v.Problems {
		if p.Weight != Deprecated {
			v.State = Wrong
		}
	}
	return v
}
