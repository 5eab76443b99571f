package metadata

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/yamledit"
)

// StyleError means that a series can't be added to a file without rewriting other lines.
type StyleError struct {
	Path string
	// Line is the line of the release series.
	Line int
	// Reason names the obstacle in the file's style.
	Reason string
	// Series is the series to add.
	Series Series
}

// Error names the obstacle and the lines to add by hand.
func (e *StyleError) Error() string {
	return fmt.Sprintf("%s: series %s can't be added without rewriting other lines: %s: add it by hand, with major: %d, minor: %d and contract: %s",
		place(e.Path, e.Line), e.Series, e.Reason, e.Series.Major, e.Series.Minor, e.Series.Contract)
}

// Add returns the file with a series for the version. It only adds lines: all other bytes stay as they are, and the new
// lines have the style of the neighbouring series.
//
// The series is inserted in the file's order: the order of most of its series. With a single series, the newest comes
// first, as in the contract's own example. If as many go up as down, the new series is added at the end.
//
// If the file already has the series with the same contract, Add returns the file itself. The error is a
// *ContractChangedError if the file has it with another contract, a *ContractError if clusterctl does not support the
// contract, and a *StyleError if the file can't be extended. A series older than the newest may have a contract that
// clusterctl supported in the past.
//
// Source: clusterctl provider contract, "Metadata YAML".
func (f *File) Add(version, contract string) (*File, error) {
	parsed, err := release.ParseVersion(version)
	if err != nil {
		return nil, fmt.Errorf("adding a series to %s: %w", f.Path, err)
	}
	added, ok := seriesOf(parsed)
	if !ok {
		return nil, fmt.Errorf("adding a series for %s to %s: clusterctl supports no version number above 2147483647", version, f.Path)
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
	if f.index(added) >= 0 {
		return f, nil
	}
	return f.insert(added)
}

// insert inserts a series into the text and verifies that the result contains all previous series and the new one, each
// in its place.
func (f *File) insert(added Series) (*File, error) {
	index := f.placeFor(added)
	refused := func(reason string) error {
		return &StyleError{Path: f.Path, Line: f.listLine, Series: added, Reason: reason}
	}
	if f.list == nil || len(f.list.Content) != len(f.series) {
		return nil, refused("its series differ from its lines")
	}
	text, err := yamledit.NewText(f.Data)
	if err != nil {
		return nil, refused(err.Error())
	}
	edit, err := text.Insert(f.list, index, []yamledit.Field{
		{Key: fieldMajor, Value: strconv.Itoa(int(added.Major))},
		{Key: fieldMinor, Value: strconv.Itoa(int(added.Minor))},
		{Key: fieldContract, Value: added.Contract},
	})
	if err != nil {
		return nil, refused(err.Error())
	}
	result, err := Parse(f.Path, text.Apply(edit))
	if err != nil {
		return nil, refused("with the new lines it would no longer be a valid metadata.yaml")
	}
	same := slices.EqualFunc(result.series, slices.Insert(f.Series(), index, added), func(a, b Series) bool {
		return a.compare(b) == 0 && a.Contract == b.Contract
	})
	if !same {
		return nil, refused("the new lines would be read as part of other series")
	}
	return result, nil
}

// The orders of the series in a file, as compare returns them for a series and the one before it.
const (
	newestFirst = -1
	oldestFirst = 1
)

// order returns the order of most series, or 0 without one. A single misplaced series doesn't change it.
func (f *File) order() int {
	up, down := f.steps()
	if up == 0 && down == 0 {
		return newestFirst
	}
	return cmp.Compare(up, down)
}

// steps counts the series that a newer and that an older one follows.
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

// placeFor returns the index for a new series.
func (f *File) placeFor(added Series) int {
	switch f.order() {
	case newestFirst:
		for i, s := range f.series {
			if s.compare(added) < 0 {
				return i
			}
		}
	case oldestFirst:
		for i, s := range slices.Backward(f.series) {
			if s.compare(added) < 0 {
				return i + 1
			}
		}
		return 0
	}
	return len(f.series)
}
