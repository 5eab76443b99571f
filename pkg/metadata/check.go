package metadata

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// Check returns what is wrong with a file that clusterctl reads, as that of a release of the series
// own, given the tags of the provider's repository. Tags that aren't the version of a release (semantic, with
// a leading v) are passed over.
//
// Clusterctl refuses a release whose own series has a contract that it doesn't take. Every released
// series has to be listed, that of a pre-release too: clusterctl refuses an upgrade plan where any
// version above the installed one has no series, and where the installed one has none.
// Source: clusterctl provider contract, "Metadata YAML"; clusterctl, client/cluster getProviderContract and getUpgradeInfo.
func (f *File) Check(own Series, tags []string) []Problem {
	return slices.Concat(f.warnings, f.checkKind(), f.checkContracts(own), f.checkDuplicates(), f.checkOrder(), f.checkTags(tags))
}

func (f *File) checkKind() []Problem {
	if f.typed.Kind != "" {
		return nil
	}
	return []Problem{{
		ID: ProblemKind, Severity: SeverityWarning, Line: f.kindLine,
		Message: "kind is missing: clusterctl v1.11.0 refuses the file, later versions take it",
		Fix:     "add `kind: " + metadataKind + "`",
	}}
}

// checkContracts returns the series whose contracts are wrong. An older series may have a contract
// that clusterctl took in the past.
func (f *File) checkContracts(own Series) []Problem {
	var problems []Problem
	for i, s := range f.series {
		isOwn := s.compare(own) == 0 && f.index(s) == i // clusterctl goes by the first
		if checkContract(s.Contract, isOwn) == nil {
			continue
		}
		p := Problem{
			ID: ProblemContractKnown, Severity: SeverityWarning, Line: s.Line,
			Message: fmt.Sprintf("series %s has contract %s, which Cluster API never had", s, s.Contract),
			Fix:     "write the contract that its CRDs carry, one of " + strings.Join(KnownContracts(), ", "),
		}
		if s.Contract == "" {
			p.Message = fmt.Sprintf("series %s has no contract", s)
		}
		if isOwn {
			p.Severity = SeverityError
			p.Message = fmt.Sprintf("series %s, the release's own, has contract %s: clusterctl refuses to install the release, as it takes providers of %s only",
				s, cmp.Or(s.Contract, `""`), strings.Join(supportedContracts, " and "))
			p.Fix = "release it with CRDs of one of these contracts, and write that one"
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
			p.Message += fmt.Sprintf(", with contract %s after %s: clusterctl installs by the first and plans upgrades by both", s.Contract, first.Contract)
			p.Fix = "keep the one with the contract that its CRDs carry"
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
	against, direction := -1, "newest first"
	if f.order() == oldestFirst {
		against, direction = 1, "oldest first"
	}
	for i := 1; i < len(f.series); i++ {
		if c := f.series[i].compare(f.series[i-1]); c != 0 && c != against {
			return []Problem{{
				ID: ProblemSeriesOrder, Severity: SeverityWarning, Line: f.series[i].Line,
				Message: fmt.Sprintf("series %s stands behind %s, so the list is neither newest first nor oldest first, and a missing series is hard to see", f.series[i], f.series[i-1]),
				Fix:     "keep the list " + direction,
			}}
		}
	}
	return nil
}

// released is a series as git tags show it.
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
	var all []released
	for _, name := range slices.Compact(slices.Sorted(slices.Values(tags))) {
		v, err := release.ParseVersion(name)
		if err != nil {
			continue
		}
		s, ok := seriesOf(v)
		if !ok {
			continue
		}
		i, exists := slices.BinarySearchFunc(all, s, func(r released, s Series) int { return r.compare(s) })
		if !exists {
			all = slices.Insert(all, i, released{Series: s})
		}
		all[i].versions = append(all[i].versions, v)
	}
	for _, r := range all {
		slices.SortStableFunc(r.versions, func(a, b *version.Version) int {
			switch {
			case a.LessThan(b):
				return -1
			case b.LessThan(a):
				return 1
			default:
				return 0
			}
		})
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
			Fix:     "add it with the contract that its CRDs carry: " + f.addCommand(newestTag, f.likelyContract(r.Series)),
		}
		switch {
		case r.compare(oldest) > 0:
			p.Message += ": clusterctl refuses to install it, and refuses every upgrade plan of users on an older series as well as on this one"
		case i >= len(all)-2:
			// Nothing or one series came after it: it is the one that users upgrade from.
			p.ID = ProblemSeriesDropped
			p.Message += ": its users, who have the newest or the one before, can't upgrade"
		default:
			// Users of an old contract can't upgrade with today's clusterctl anyway, and tags don't tell
			// contracts: so providers that drop series of an old contract are right.
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

// CheckPrevious returns what the file lost or changed of an earlier release's metadata.yaml: a
// dropped series strands its users, an error where clusterctl still upgrades its contract, and the
// contract of a series never changes. A series that no tag belongs to was listed ahead of its first
// release, as providers do, and may change; where tags is nil, every series counts as released.
// Source: clusterctl, client/cluster getUpgradeInfo.
func (f *File) CheckPrevious(previous *File, tags []string) []Problem {
	all := releasedSeries(tags)
	var problems []Problem
	for i, before := range previous.series {
		if previous.index(before) != i {
			continue // clusterctl goes by the first; Check reports the second
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
				Message: fmt.Sprintf("series %s had contract %s before and has %s now: clusterctl plans upgrades by the newest file, so it takes releases of that series for what they are not", now, before.Contract, now.Contract),
				Fix:     "set it back, and release the change of contract as a new minor version",
			})
		}
	}
	return problems
}

// dropped returns the problem of a series that an earlier file has and this one hasn't.
func (f *File) dropped(before Series) Problem {
	p := Problem{
		ID: ProblemSeriesDropped, Severity: SeverityWarning, Line: f.listLine,
		Message: fmt.Sprintf("series %s with contract %s was listed before and is missing: its users can't upgrade", before, before.Contract),
		Fix:     "add it again: " + f.addCommand(before.String()+".0", before.Contract),
	}
	if slices.Contains(supportedContracts, before.Contract) {
		p.Severity = SeverityError
	}
	return p
}
