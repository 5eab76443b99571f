package metadata

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Check returns the problems of a file that clusterctl reads, for a release of the series own, given the tags of the
// provider's repository. It skips tags that aren't the version of a release (semantic, with a leading v).
//
// clusterctl refuses a release whose own series has an unsupported contract. Every released series must be listed, also
// that of a pre-release: clusterctl refuses an upgrade plan if any version above the installed one, or the installed
// one itself, has no series.
//
// Source: clusterctl provider contract, "Metadata YAML"; clusterctl, client/cluster getProviderContract and
// getUpgradeInfo.
func (f *File) Check(own Series, tags []string) []Problem {
	return slices.Concat(f.warnings, f.checkContracts(own), f.checkDuplicates(), f.checkOrder(), f.checkTags(tags))
}

// checkContracts returns the problems of contracts. An older series may have a contract that clusterctl supported in
// the past.
func (f *File) checkContracts(own Series) []Problem {
	var problems []Problem
	for i, s := range f.series {
		isOwn := s.compare(own) == 0 && f.index(s) == i // clusterctl uses the first
		if checkContract(s.Contract, isOwn) == nil {
			continue
		}
		p := Problem{
			ID: ProblemContractKnown, Severity: SeverityWarning, Line: s.Line,
			Message: fmt.Sprintf("series %s has contract %s, which Cluster API never had", s, s.Contract),
			Fix:     "write the contract in the labels of its CRDs, one of " + strings.Join(KnownContracts(), ", "),
		}
		if s.Contract == "" {
			p.Message = fmt.Sprintf("series %s has no contract", s)
		}
		if isOwn {
			p.Severity = SeverityError
			p.Message = fmt.Sprintf("series %s of the release has contract %s: clusterctl refuses to install the release, because it supports only %s",
				s, cmp.Or(s.Contract, `""`), strings.Join(supportedContracts, " and "))
			p.Fix = "implement one of these contracts in the CRDs, and write that contract"
		}
		problems = append(problems, p)
	}
	return problems
}

func (f *File) checkDuplicates() []Problem {
	var problems []Problem
	for i, s := range f.series {
		at := f.index(s)
		if at == i {
			continue
		}
		first := f.series[at]
		p := Problem{
			ID: ProblemSeriesDuplicate, Severity: SeverityWarning, Line: s.Line,
			Message: fmt.Sprintf("series %s is listed a second time (first in line %d)", s, first.Line),
			Fix:     "remove one of the two",
		}
		if first.Contract != s.Contract {
			p.Severity = SeverityError
			p.Message += fmt.Sprintf(", with contract %s after %s: clusterctl uses the first for installations and both for upgrade plans", s.Contract, first.Contract)
			p.Fix = "keep the one with the contract in the labels of its CRDs"
		}
		problems = append(problems, p)
	}
	return problems
}

func (f *File) checkOrder() []Problem {
	up, down := f.steps()
	if up == 0 || down == 0 {
		return nil
	}
	against, direction := newestFirst, "newest first"
	if f.order() == oldestFirst {
		against, direction = oldestFirst, "oldest first"
	}
	for i := 1; i < len(f.series); i++ {
		if c := f.series[i].compare(f.series[i-1]); c == -against {
			return []Problem{{
				ID: ProblemSeriesOrder, Severity: SeverityWarning, Line: f.series[i].Line,
				Message: fmt.Sprintf("series %s follows %s, so the list is sorted neither newest first nor oldest first, and a missing series is hard to see", f.series[i], f.series[i-1]),
				Fix:     "keep the list " + direction,
			}}
		}
	}
	return nil
}

// released is a series that git tags contain.
type released struct {
	Series
	// versions are its releases, oldest first.
	versions []*version.Version
}

// tag returns a release's tag.
func tag(v *version.Version) string {
	return "v" + v.String()
}

// String returns the tags of a series, e.g. "v0.1.0 to v0.1.7 (8 tags)".
func (r released) String() string {
	oldest, newest := r.versions[0], r.versions[len(r.versions)-1]
	if len(r.versions) == 1 {
		return tag(oldest)
	}
	return fmt.Sprintf("%s to %s (%d tags)", tag(oldest), tag(newest), len(r.versions))
}

// releasedSeries returns the series that tags belong to, oldest first.
func releasedSeries(tags []string) []released {
	var versions []*version.Version
	for _, name := range slices.Compact(slices.Sorted(slices.Values(tags))) {
		if v, err := release.ParseVersion(name); err == nil {
			versions = append(versions, v)
		}
	}
	sort.SliceStable(versions, func(i, j int) bool { return versions[i].LessThan(versions[j]) })
	var all []released
	for _, v := range versions {
		s, ok := seriesOf(v)
		if !ok {
			continue
		}
		if len(all) == 0 || all[len(all)-1].compare(s) != 0 {
			all = append(all, released{Series: s})
		}
		last := &all[len(all)-1]
		last.versions = append(last.versions, v)
	}
	return all
}

func (f *File) checkTags(tags []string) []Problem {
	all := releasedSeries(tags)
	oldest := slices.MinFunc(f.series, Series.compare)
	var problems []Problem
	for i, r := range all {
		if _, ok := f.find(r.Series); ok {
			continue
		}
		newestTag := tag(r.versions[len(r.versions)-1])
		p := Problem{
			ID: ProblemSeriesPresent, Severity: SeverityError, Line: f.listLine,
			Message: fmt.Sprintf("series %s is missing, but %s %s", r.Series, r, isOrAre(r.versions)),
			Fix:     "add it with the contract in the labels of its CRDs: " + AddCommand(f.Path, newestTag, f.likelyContract(r.Series), false),
		}
		switch {
		case r.compare(oldest) > 0:
			p.Message += ": clusterctl refuses to install it, and refuses every upgrade plan of users of this series and older ones"
		case i >= len(all)-2:
			// At most one newer series exists: users upgrade from this one.
			p.ID = ProblemSeriesDropped
			p.Message += ": users of this series, the newest or second newest, can't upgrade"
		default:
			// Users of an old contract can't upgrade with today's clusterctl anyway, and tags don't show contracts:
			// providers may drop series of an old contract.
			p.ID, p.Severity = ProblemSeriesDropped, SeverityWarning
			p.Message += ": its users can't upgrade; that is right only if its contract is not one of " + strings.Join(supportedContracts, ", ")
		}
		problems = append(problems, p)
	}
	return problems
}

func isOrAre(versions []*version.Version) string {
	if len(versions) == 1 {
		return "is tagged"
	}
	return "are tagged"
}

// CheckPrevious returns the series of an earlier release's metadata.yaml that the file lost or changed. Users of a
// dropped series can't upgrade, which is an error if clusterctl still supports its contract, and the contract of a
// series must never change. A series without a tag was listed ahead of its first release and may change; if tags is
// nil, every series counts as released.
//
// Source: clusterctl, client/cluster getUpgradeInfo.
func (f *File) CheckPrevious(previous *File, tags []string) []Problem {
	all := releasedSeries(tags)
	var problems []Problem
	for i, before := range previous.series {
		if previous.index(before) != i {
			continue // clusterctl uses the first; Check reports the second
		}
		if tags != nil && !slices.ContainsFunc(all, func(r released) bool { return r.compare(before) == 0 }) {
			continue
		}
		now, ok := f.find(before)
		switch {
		case !ok:
			problems = append(problems, f.dropped(before))
		case now.Contract != before.Contract:
			problems = append(problems, Problem{
				ID: ProblemSeriesContractChanged, Severity: SeverityError, Line: now.Line,
				Message: fmt.Sprintf("series %s had contract %s before and has %s now: clusterctl plans upgrades with the newest file, so it assumes a wrong contract for published releases of the series", now, before.Contract, now.Contract),
				Fix:     "restore it, and release the change of contract as a new minor version",
			})
		}
	}
	return problems
}

// dropped returns the problem of a series that only an earlier file has.
func (f *File) dropped(before Series) Problem {
	p := Problem{
		ID: ProblemSeriesDropped, Severity: SeverityWarning, Line: f.listLine,
		Message: fmt.Sprintf("series %s with contract %s was listed before and is missing: its users can't upgrade", before, before.Contract),
		Fix:     "add it again: " + AddCommand(f.Path, before.String()+".0", before.Contract, false),
	}
	if slices.Contains(supportedContracts, before.Contract) {
		p.Severity = SeverityError
	}
	return p
}
