// Package contract has the checks of the provider contracts.
package contract

import (
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

// Checks has a check for each rule of the contract pages that a release can show. Rules about the behaviour of a
// controller have no check.
var Checks = func() checks.List {
	var list checks.List
	for _, rule := range contract.Rules() {
		if rule.Visible() {
			list = append(list, contractCheck(rule))
		}
	}
	return list
}()

// contractCheck returns the check of a rule.
func contractCheck(rule contract.Rule) checks.Check {
	severity := checks.Warning
	if rule.Mandatory {
		severity = checks.Error
	}
	return checks.Check{
		ID: "contract-" + rule.ID, Group: checks.Contract, Severity: severity, Title: rule.Title,
		Source: fmt.Sprintf("contract rules for %s, %s", rule.Resource, strings.ReplaceAll(rule.Heading(), "`", "")),
		Run: checks.Each(installed.Implementations, func(s *checks.Subject, i *contract.Implementation, report checks.Report) {
			for _, p := range rule.Check(i).Problems {
				report(contractFinding(s, p))
			}
		}),
	}
}

// contractFinding returns the finding for a problem, with its place.
func contractFinding(s *checks.Subject, p contract.Problem) checks.Finding {
	f := checks.Finding{Place: s.At(s.Release.Provider.ComponentsFile()), Message: p.Reason, Fix: p.Fix}
	if p.CRD != nil {
		f.Place = p.CRD.Place(p.Path...)
	}
	switch p.Weight {
	case contract.Lax:
		f.Severity = checks.Warning
	case contract.Deprecated:
		f.Severity = checks.Note
	}
	return f
}
