package checks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var contractSkipped = upgradeCheck("contract-skipped", Error, "Contracts follow each other", "clusterctl upgrade plan; Cluster API book, Provider contracts, Compatibility",
	func(s *Subject, u *upgrade, report Report) {
		file, err := s.Metadata()
		previous, errBefore := u.before.Metadata()
		if file == nil || err != nil || previous == nil || errBefore != nil {
			return
		}
		newest, found := file.SeriesFor(s.Release.Version)
		oldest, foundBefore := previous.SeriesFor(s.Previous.Version)
		all := metadata.KnownContracts()
		from, to := slices.Index(all, oldest.Contract), slices.Index(all, newest.Contract)
		if !found || !foundBefore || from < 0 || to < 0 {
			return // series-present and contract-known say so
		}
		if newest.Major == oldest.Major && newest.Minor == oldest.Minor {
			return // series-contract-changed says so
		}
		place := s.At(release.MetadataFile)
		if to < from {
			report(Finding{Place: place, Severity: Warning,
				Message: fmt.Sprintf("the contract goes back from %s to %s: the installed CRDs keep the label of %s, which clusterctl upgrade does not take away, and Cluster API goes by it", oldest.Contract, newest.Contract, oldest.Contract),
				Fix:     "keep the contract, or release it as a provider of its own"})
			return
		}
		skipped := slices.DeleteFunc(slices.Clone(all[from:max(to, from+1)]), func(contract string) bool {
			return contract == oldest.Contract || slices.ContainsFunc(file.Series(), func(series metadata.Series) bool { return series.Contract == contract })
		})
		if len(skipped) > 0 {
			report(Finding{Place: place,
				Message: fmt.Sprintf("the release before is of contract %s and this one of %s, and no series is of %s: core Cluster API goes up one contract at a time, and works only with the one it has and the one before it, so users have no way from there to here",
					oldest.Contract, newest.Contract, strings.Join(skipped, " or ")),
				Fix: "release a series with each contract in between first"})
		}
	})
