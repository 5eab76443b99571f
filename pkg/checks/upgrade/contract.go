package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var contractSkipped = upgradeCheck("contract-skipped", checks.Error, "Contracts follow each other", "clusterctl upgrade plan; Cluster API book, Provider contracts, Compatibility",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		file, _ := s.Metadata()
		previous, _ := u.before.Metadata()
		if file == nil || previous == nil {
			reportSkippedLabels(s, u, nil, report)
			return nil
		}
		newest, found := file.SeriesFor(s.Release.Version)
		oldest, foundBefore := previous.SeriesFor(s.Previous.Version)
		from, to := contractIndex(oldest.Contract), contractIndex(newest.Contract)
		if !found || !foundBefore || from < 0 || to < 0 {
			reportSkippedLabels(s, u, nil, report) // of metadata.yaml, series-present and contract-known say what is wrong
			return nil
		}
		if newest.Major == oldest.Major && newest.Minor == oldest.Minor {
			reportSkippedLabels(s, u, nil, report) // of metadata.yaml, series-contract-changed says so
			return nil
		}
		place := s.At(release.MetadataFile)
		if to < from {
			if len(u.leftLabels()) > 0 {
				return nil // contract-label-left says so
			}
			report(checks.Finding{Place: place, Severity: checks.Warning,
				Message: fmt.Sprintf("the contract goes back from %s to %s: Cluster API goes by the labels of the installed CRDs, of which clusterctl upgrade takes none away", oldest.Contract, newest.Contract),
				Fix:     "keep the contract, or release it as a provider of its own"})
			return nil
		}
		released := contractsOf(file)
		if skipped := contractsBetween(from, to, released); len(skipped) > 0 {
			report(checks.Finding{Place: place,
				Message: fmt.Sprintf("the release before is of contract %s and this one of %s, and no series is of %s: %s",
					oldest.Contract, newest.Contract, strings.Join(skipped, " or "), noWay),
				Fix: "release a series with each contract in between first"})
			return nil
		}
		reportSkippedLabels(s, u, released, report)
		return nil
	})

var contractRaised = upgradeCheck("contract-raised", checks.Note, "The contract is that of the release before", "clusterctl upgrade plan; Cluster API book, Provider contracts, Compatibility",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		file, _ := s.Metadata()
		previous, _ := u.before.Metadata()
		if file == nil || previous == nil {
			return nil // metadata-present and metadata-parse say so
		}
		newest, found := file.SeriesFor(s.Release.Version)
		oldest, foundBefore := previous.SeriesFor(s.Previous.Version)
		from, to := contractIndex(oldest.Contract), contractIndex(newest.Contract)
		if !found || !foundBefore || from < 0 || to <= from || len(contractsBetween(from, to, contractsOf(file))) > 0 {
			return nil // contract-skipped reports a step over a contract
		}
		report(checks.Finding{Place: s.AtLine(release.MetadataFile, newest.Line),
			Message: fmt.Sprintf("the contract is %s, and was %s: clusterctl upgrade refuses this release where core Cluster API is of contract %s, so users have to upgrade core before or with it", newest.Contract, oldest.Contract, oldest.Contract),
			Fix:     "say in the release notes which core Cluster API the release needs"})
		return nil
	})

// noWay says why users can't go from a contract to the next but one.
const noWay = "core Cluster API goes up one contract at a time, and works only with the one it has and the one before it, so users have no way from there to here"

// contractIndex returns a contract's place among all that Cluster API has or had, oldest first, or -1.
func contractIndex(contract string) int { return slices.Index(metadata.KnownContracts(), contract) }

// contractsOf returns the contracts of the series in a metadata.yaml.
func contractsOf(file *metadata.File) map[string]bool {
	contracts := map[string]bool{}
	for _, series := range file.Series() {
		contracts[series.Contract] = true
	}
	return contracts
}

// contractsBetween returns the contracts between two that no series was released with.
func contractsBetween(from, to int, released map[string]bool) []string {
	var skipped []string
	for i := from + 1; i < to; i++ {
		if contract := metadata.KnownContracts()[i]; !released[contract] {
			skipped = append(skipped, contract)
		}
	}
	return skipped
}

// reportSkippedLabels reports the first CRD whose labels go from a contract to the next but one: core
// Cluster API reads these, and not metadata.yaml.
func reportSkippedLabels(s *checks.Subject, u *upgrade, released map[string]bool, report checks.Report) {
	for _, p := range u.pairs {
		if _, _, ok := installed.ContractKindOf(s, p.after); !ok {
			continue
		}
		before, after := contractIndexes(p.before), contractIndexes(p.after)
		if len(before) == 0 || len(after) == 0 {
			continue
		}
		from, to := slices.Max(before), slices.Min(after)
		if skipped := contractsBetween(from, to, released); len(skipped) > 0 {
			all := metadata.KnownContracts()
			report(checks.Finding{Place: p.after.Place("metadata", "labels"),
				Message: fmt.Sprintf("the label of the CRD is of contract %s in the release before and of %s in this one, and none is of %s: %s", all[from], all[to], strings.Join(skipped, " or "), noWay),
				Fix:     "release a series with each contract in between first, or keep the labels of the older contracts while their versions are served"})
			return
		}
	}
}

// contractIndexes returns the contracts that a CRD's labels declare, as places among all contracts.
func contractIndexes(crd checks.CRD) []int {
	var indexes []int
	for contract, versions := range installed.ContractLabels(crd) {
		if versions[0] != "" { // core Cluster API ignores a label without a value
			indexes = append(indexes, contractIndex(contract))
		}
	}
	return indexes
}

// leftLabel is a contract label that only the release before has on a CRD.
type leftLabel struct {
	crdPair
	contract string
}

// leftLabels returns the contract labels that stay on installed CRDs although this release has none
// of them.
func (u *upgrade) leftLabels() []leftLabel {
	var left []leftLabel
	for _, p := range u.pairs {
		after := installed.ContractLabels(p.after)
		before := installed.ContractLabels(p.before)
		for _, contract := range metadata.KnownContracts() {
			if versions := before[contract]; len(versions) > 0 && versions[0] != "" && after[contract] == nil {
				left = append(left, leftLabel{p, contract})
			}
		}
	}
	return left
}

var contractLabelLeft = upgradeCheck("contract-label-left", checks.Warning, "No contract label of the release before is gone from a CRD", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, l := range u.leftLabels() {
			label := installed.ContractPrefix + l.contract
			f := checks.Finding{Place: l.after.Place("metadata", "labels"), Cause: l.contract,
				Message: fmt.Sprintf("the label %s of the release before is gone, but stays on the installed CRD, which clusterctl upgrade merges: a core Cluster API of that contract goes on to ask for the version that it names", label),
				Fix:     fmt.Sprintf("set the label to \"\", which Cluster API takes for none: %s: \"\"", label)}
			indexes := contractIndexes(l.after)
			if _, _, touched := installed.ContractKindOf(s, l.after); touched && len(indexes) > 0 && slices.Max(indexes) < contractIndex(l.contract) {
				f.Severity = checks.Error
				f.Message = fmt.Sprintf("the label %s of the release before is gone, but stays on the installed CRD, which clusterctl upgrade merges: it is the newest, so core Cluster API reads and writes objects by contract %s, which this release no longer has", label, l.contract)
				f.Fix = fmt.Sprintf("keep the contract; to go back, set the label to \"\", which Cluster API takes for none: %s: \"\"", label)
			}
			report(f)
		}
		return nil
	})
