package checks

import (
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

// contractChecks has a check for each rule of the contract pages that a release can show. A rule
// about what a controller does has none: nothing in a release could break it.
var contractChecks = func() []Check {
	var checks []Check
	for _, rule := range contract.Rules() {
		if rule.Visible() {
			checks = append(checks, contractCheck(rule))
		}
	}
	return checks
}()

// contractCheck returns the check of a rule.
func contractCheck(rule contract.Rule) Check {
	severity := Warning
	if rule.Mandatory {
		severity = Error
	}
	return Check{
		ID: "contract-" + rule.ID, Group: Contract, Severity: severity, Title: rule.Title,
		Source: fmt.Sprintf("contract rules for %s, %s", rule.Resource, strings.ReplaceAll(rule.Heading(), "`", "")),
		Run: func(s *Subject, report Report) {
			for _, i := range s.implementations() {
				for _, p := range rule.Check(i).Problems {
					report(contractFinding(s, p))
				}
			}
		},
	}
}

// contractFinding says what a rule found, where it found it.
func contractFinding(s *Subject, p contract.Problem) Finding {
	f := Finding{Place: s.At(s.Release.Provider.ComponentsFile()), Message: p.Reason, Fix: p.Fix}
	if p.CRD != nil {
		f.Place = p.CRD.Place(p.Path...)
	}
	switch p.Weight {
	case contract.Lax:
		f.Severity = Warning
	case contract.Deprecated:
		f.Severity = Note
	}
	return f
}

// implementations returns the kinds of the release that play a part in the contract. There are none
// where the components can't be read: what is missing from them may be in the part that is not read.
func (s *Subject) implementations() []*contract.Implementation {
	documents, err := s.Components()
	if err != nil || len(documents) == 0 {
		return nil
	}
	return s.onceImplementations.get(func() []*contract.Implementation {
		return contract.Implementations(s.Release.Provider.Type, s.CRDs())
	})
}
