package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/yamledit"
)

// StyleError says that a file is written in a way that a series can't be added to without
// rewriting what is there.
type StyleError struct {
	Path string
	// Line is where the release series are.
	Line int
	// Reason says what in the file's style stands in the way.
	Reason string
	// Series is what was to be added.
	Series Series
}

// Error says what is in the way and what to write by hand.
func (e *StyleError) Error() string {
	return fmt.Sprintf("%s: series %s can't be added without rewriting what is there: %s: add it by hand, with major: %d, minor: %d and contract: %s",
		place(e.Path, e.Line), e.Series, e.Reason, e.Series.Major, e.Series.Minor, e.Series.Contract)
}

// Add returns the file with a series for the version. Only the new lines are new: all other bytes
// stay as they are, and the new lines are written like those of the series next to them.
//
// The series goes to its place in the file's order: the one in which most of its series follow
// each other. Where there is but one series the newest comes first, as in the contract's own
// example; where as many go up as down the new series goes to the end.
//
// Where the series is there with the same contract, the file itself is returned. The error is a
// *ContractChangedError where it is there with another one, a *ContractError where clusterctl takes
// no provider of the contract, and a *StyleError where the file can't be added to. A series that is
// older than the newest may have a contract that clusterctl took in the past.
// Source: clusterctl provider contract, "Metadata YAML".
func (f *File) Add(version, contract string) (*File, error) {
	parsed, err := release.ParseVersion(version)
	if err != nil {
		return nil, fmt.Errorf("adding a series to %s: %w", f.Path, err)
	}
	added, ok := seriesOf(parsed)
	if !ok {
		return nil, fmt.Errorf("adding a series for %s to %s: clusterctl takes no version number above 2147483647", version, f.Path)
	}
	if err := checkContract(contract, added.compare(f.Newest()) >= 0); err != nil {
		return nil, fmt.Errorf("adding a series for %s to %s: %w", version, f.Path, err)
	}
	added.Contract = contract
	for _, s := range f.series {
		if s.compare(added) == 0 && s.Contract != contract {
			return nil, &ContractChangedError{Path: f.Path, Series: s, Contract: contract}
		}
	}
	if _, there := f.find(added); there {
		return f, nil
	}
	return f.insert(added)
}

// insert splices a series into the text and makes sure that the result holds what was there and
// the new series, each in its place.
func (f *File) insert(added Series) (*File, error) {
	index := f.placeFor(added)
	refused := &StyleError{Path: f.Path, Line: f.listLine, Series: added}
	if f.list == nil || len(f.list.Content) != len(f.series) {
		refused.Reason = "its series are not those that its lines show"
		return nil, refused
	}
	text, err := yamledit.NewText(f.Data)
	if err != nil {
		refused.Reason = err.Error()
		return nil, refused
	}
	edit, err := text.Insert(f.list, index, []yamledit.Field{
		{Key: fieldMajor, Value: strconv.Itoa(int(added.Major))},
		{Key: fieldMinor, Value: strconv.Itoa(int(added.Minor))},
		{Key: fieldContract, Value: added.Contract},
	})
	if err != nil {
		refused.Reason = err.Error()
		return nil, refused
	}
	result, err := Parse(f.Path, text.Apply(edit))
	if err != nil {
		var parseError *ParseError
		if !errors.As(err, &parseError) {
			return nil, err
		}
		refused.Reason = "with the new lines it would be no metadata.yaml any more"
		return nil, refused
	}
	same := slices.EqualFunc(result.series, slices.Insert(f.Series(), index, added), func(a, b Series) bool {
		return a.compare(b) == 0 && a.Contract == b.Contract
	})
	if !same {
		refused.Reason = "the new lines would be read as part of other series"
		return nil, refused
	}
	return result, nil
}

// order is the direction in which series follow each other in a file.
type order int

const (
	unordered order = iota
	newestFirst
	oldestFirst
)

// order returns the direction in which most series follow each other. A single misplaced series
// doesn't turn a list that is kept newest first into one that grows at its end.
func (f *File) order() order {
	up, down := f.steps()
	switch {
	case up == 0 && down == 0, down > up:
		return newestFirst
	case up > down:
		return oldestFirst
	default:
		return unordered
	}
}

// steps counts how often a series is followed by a newer and by an older one.
func (f *File) steps() (up, down int) {
	for i := 1; i < len(f.series); i++ {
		switch c := f.series[i].compare(f.series[i-1]); {
		case c > 0:
			up++
		case c < 0:
			down++
		}
	}
	return up, down
}

// placeFor returns the index at which a series is to stand.
func (f *File) placeFor(added Series) int {
	switch f.order() {
	case newestFirst:
		for i, s := range f.series {
			if s.compare(added) < 0 {
				return i
			}
		}
		return len(f.series)
	case oldestFirst:
		for i, s := range slices.Backward(f.series) {
			if s.compare(added) < 0 {
				return i + 1
			}
		}
		return 0
	default:
		return len(f.series)
	}
}
