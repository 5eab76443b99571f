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

var contractSkipped = upgradeCheck("contract-skipped", checks.Error, "No contract is skipped", "clusterctl upgrade plan; Cluster API book, Provider contracts, Compatibility",
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
			reportSkippedLabels(s, u, nil, report) // series-present and contract-known report the defects of metadata.yaml
			return nil
		}
		if newest.Major == oldest.Major && newest.Minor == oldest.Minor {
			reportSkippedLabels(s, u, nil, report) // series-contract-changed reports metadata.yaml
			return nil
		}
		place := s.At(release.MetadataFile)
		if to < from {
			if len(u.leftLabels()) > 0 {
				return nil // contract-label-left reports it
			}
			report(checks.Finding{Place: place, Severity: checks.Warning,
				Message: fmt.Sprintf("the contract goes back from %s to %s: Cluster API uses the labels of the installed CRDs, and clusterctl upgrade removes none of them", oldest.Contract, newest.Contract),
				Fix:     "keep the contract, or release the older one as another provider"})
			return nil
		}
		released := contractsOf(file)
		if skipped := contractsBetween(from, to, released); len(skipped) > 0 {
			report(checks.Finding{Place: place,
				Message: fmt.Sprintf("the previous release has contract %s, this one %s, and no series has %s: %s",
					oldest.Contract, newest.Contract, strings.Join(skipped, " or "), noWay),
				Fix: "release a series with each contract in between first"})
			return nil
		}
		reportSkippedLabels(s, u, released, report)
		return nil
	})

var contractRaised = upgradeCheck("contract-raised", checks.Note, "The contract stays that of the previous release", "clusterctl upgrade plan; Cluster API book, Provider contracts, Compatibility",
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		file, _ := s.Metadata()
		previous, _ := u.before.Metadata()
		if file == nil || previous == nil {
			return nil // metadata-present and metadata-parse report it
		}
		newest, found := file.SeriesFor(s.Release.Version)
		oldest, foundBefore := previous.SeriesFor(s.Previous.Version)
		from, to := contractIndex(oldest.Contract), contractIndex(newest.Contract)
		if !found || !foundBefore || from < 0 || to <= from || len(contractsBetween(from, to, contractsOf(file))) > 0 {
			return nil // contract-skipped reports it
		}
		report(checks.Finding{Place: s.AtLine(release.MetadataFile, newest.Line),
			Message: fmt.Sprintf("the contract is %s, and was %s: clusterctl upgrade refuses this release with a core Cluster API of contract %s, so users have to upgrade core before or with it", newest.Contract, oldest.Contract, oldest.Contract),
			Fix:     "document in the release notes which core Cluster API the release needs"})
		return nil
	})

// noWay says why users can't skip a contract.
const noWay = "core Cluster API moves up one contract at a time, and works only with its own contract and the previous one, so users can't upgrade"

// contractIndex returns the position of a contract among all contracts that Cluster API has or had, oldest first, or
// -1.
func contractIndex(contract string) int { return slices.Index(metadata.KnownContracts(), contract) }

// contractsOf returns the contracts of the series in a metadata.yaml.
func contractsOf(file *metadata.File) map[string]bool {
	contracts := map[string]bool{}
	for _, series := range file.Series() {
		contracts[series.Contract] = true
	}
	return contracts
}

// contractsBetween returns the contracts between two that no series has.
func contractsBetween(from, to int, released map[string]bool) []string {
	var skipped []string
	for i := from + 1; i < to; i++ {
		if contract := metadata.KnownContracts()[i]; !released[contract] {
			skipped = append(skipped, contract)
		}
	}
	return skipped
}

// reportSkippedLabels reports the first CRD whose labels skip a contract: core Cluster API reads the labels, not
// metadata.yaml.
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
				Message: fmt.Sprintf("the label of the CRD has contract %s in the previous release and %s in this one, and no label has %s: %s", all[from], all[to], strings.Join(skipped, " or "), noWay),
				Fix:     "release a series with each contract in between first, or keep the labels of the older contracts while their versions are served"})
			return
		}
	}
}

// contractIndexes returns the contracts in a CRD's labels, as positions among all contracts.
func contractIndexes(crd checks.CRD) []int {
	var indexes []int
	for contract, versions := range installed.ContractLabels(crd) {
		if versions[0] != "" { // core Cluster API ignores a label without a value
			indexes = append(indexes, contractIndex(contract))
		}
	}
	return indexes
}

// leftLabel is a contract label of a CRD that only the previous release has.
type leftLabel struct {
	crdPair
	contract string
}

// leftLabels returns the contract labels that stay on installed CRDs although this release does not have them.
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

var contractLabelLeft = upgradeCheck("contract-label-left", checks.Warning, "No contract label of the previous release is missing on a CRD", sourceUpgrade,
	func(_ context.Context, s *checks.Subject, u *upgrade, report checks.Report) error {
		for _, l := range u.leftLabels() {
			label := installed.ContractPrefix + l.contract
			f := checks.Finding{Place: l.after.Place("metadata", "labels"), Cause: l.contract,
				Message: fmt.Sprintf("the label %s of the previous release was removed, but stays on the installed CRD, which clusterctl upgrade merges: a core Cluster API of that contract still requests the version that it names", label),
				Fix:     fmt.Sprintf("set the label to \"\", which Cluster API ignores: %s: \"\"", label)}
			indexes := contractIndexes(l.after)
			if _, _, touched := installed.ContractKindOf(s, l.after); touched && len(indexes) > 0 && slices.Max(indexes) < contractIndex(l.contract) {
				f.Severity = checks.Error
				f.Message = fmt.Sprintf("the label %s of the previous release was removed, but stays on the installed CRD, which clusterctl upgrade merges: it is the newest, so core Cluster API reads and writes objects by contract %s, which this release no longer has", label, l.contract)
				f.Fix = fmt.Sprintf("keep the contract; to go back, set the label to \"\", which Cluster API ignores: %s: \"\"", label)
			}
			report(f)
		}
		return nil
	})
