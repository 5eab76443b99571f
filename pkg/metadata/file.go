package metadata

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// File is a metadata.yaml with its original text. It is immutable: Add returns another File.
type File struct {
	// Path is the file's name as given to Parse; messages contain it.
	Path string
	// Data is the text, byte for byte.
	Data []byte

	series []Series
	// list is the sequence below releaseSeries, for the places of its entries in Data.
	list     *yaml.Node
	listLine int
	// warnings are about content that clusterctl accepts but does not read as intended.
	warnings []Problem
}

// Series is one entry of releaseSeries: the contract of all releases with that major and minor version.
// Source: clusterctl provider contract, "Metadata YAML".
type Series struct {
	Major    int32
	Minor    int32
	Contract string
	// Line is the first line of the entry in the file, counted from 1, or 0 if it isn't in a file.
	Line int
}

// String returns the usual name of the series, e.g. "v0.2".
func (s Series) String() string {
	return fmt.Sprintf("v%d.%d", s.Major, s.Minor)
}

// compare orders series by major and minor version.
func (s Series) compare(other Series) int {
	return cmp.Or(cmp.Compare(s.Major, other.Major), cmp.Compare(s.Minor, other.Minor))
}

// seriesOf returns the series of a version, without a contract, or false if its numbers exceed the limits of a
// metadata.yaml.
func seriesOf(v *version.Version) (Series, bool) {
	if v.Major() > math.MaxInt32 || v.Minor() > math.MaxInt32 {
		return Series{}, false
	}
	return Series{Major: int32(v.Major()), Minor: int32(v.Minor())}, true //nolint:gosec // checked above
}

// Series returns the release series in the file's order. There is at least one.
func (f *File) Series() []Series {
	return slices.Clone(f.series)
}

// SeriesFor returns the series of a version by clusterctl's rule: the first in the file with the same major and minor
// version, whatever the patch and the pre-release are. It returns false if there is none or the version isn't semantic.
func (f *File) SeriesFor(v string) (Series, bool) {
	parsed, err := version.ParseSemantic(v)
	if err != nil {
		return Series{}, false
	}
	wanted, ok := seriesOf(parsed)
	if !ok {
		return Series{}, false
	}
	return f.find(wanted)
}

// find returns the first series with that major and minor version.
func (f *File) find(wanted Series) (Series, bool) {
	i := f.index(wanted)
	if i < 0 {
		return Series{}, false
	}
	return f.series[i], true
}

// index returns the index of the first series with that major and minor version, or -1.
func (f *File) index(wanted Series) int {
	return slices.IndexFunc(f.series, func(s Series) bool { return s.compare(wanted) == 0 })
}

// Newest returns the series with the highest version.
func (f *File) Newest() Series {
	return slices.MaxFunc(f.series, Series.compare)
}

// Contract returns the contract of a release, which is that of its series. The error is a *NoSeriesError if the file
// has no series for it, and another one if version does not have the form that clusterctl looks up.
//
// Source: clusterctl provider contract, "Metadata YAML".
func (f *File) Contract(v string) (string, error) {
	parsed, err := release.ParseVersion(v)
	if err != nil {
		return "", fmt.Errorf("looking up the contract in %s: %w", f.Path, err)
	}
	wanted, inRange := seriesOf(parsed)
	if s, ok := f.find(wanted); ok && inRange {
		return s.Contract, nil
	}
	likely := f.likelyContract(wanted)
	return "", &NoSeriesError{
		Path:    f.Path,
		Version: v,
		Listed:  f.Series(),
		Likely:  likely,
		Command: AddCommand(f.Path, v, likely, false),
	}
}
