package checks

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// TestFold checks how findings are merged: want is the number of places of each merged finding.
func TestFold(t *testing.T) {
	at := func(file, path string, line int) manifest.Place {
		return manifest.Place{File: file, Path: path, Line: line, Object: manifest.Object{Kind: "Secret"}}
	}
	tests := map[string]struct {
		findings []Finding
		want     []int
	}{
		"the same field of list items": {want: []int{2}, findings: []Finding{
			{Place: at("a", "spec.list[0].a", 1), Message: "m"}, {Place: at("a", "spec.list[11].a", 2), Message: "m"},
		}},
		"other fields": {want: []int{1, 1}, findings: []Finding{
			{Place: at("a", "spec.a", 1), Message: "m"}, {Place: at("a", "spec.b", 2), Message: "m"},
		}},
		"warnings of two files": {want: []int{2}, findings: []Finding{
			{Place: at("a", "", 1), Message: "m", Severity: Warning}, {Place: at("b", "", 1), Message: "m", Severity: Warning},
		}},
		"errors of two files": {want: []int{1, 1}, findings: []Finding{
			{Place: at("a", "", 1), Message: "m", Severity: Error}, {Place: at("b", "", 1), Message: "m", Severity: Error},
		}},
		"a cause": {want: []int{3, 1}, findings: []Finding{
			{Place: at("a", "x", 1), Message: "m", Cause: "c", Severity: Error}, {Place: at("b", "y", 1), Message: "n", Cause: "c", Severity: Error},
			{Place: at("b", "y", 1), Message: "n", Cause: "d", Severity: Error}, {Place: at("b", "y", 2), Message: "n", Cause: "c", Severity: Error},
		}},
		"one place twice": {want: []int{2}, findings: []Finding{
			{Place: at("a", "", 1), Message: "m"}, {Place: at("a", "", 2), Message: "m"}, {Place: at("a", "", 2), Message: "m"}, {Place: at("a", "", 1), Message: "m"},
		}},
		"other checks": {want: []int{1, 1}, findings: []Finding{
			{Place: at("a", "", 1), ID: "a", Cause: "c"}, {Place: at("a", "", 2), ID: "b", Cause: "c"},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var places []int
			for _, f := range fold(test.findings) {
				places = append(places, 1+len(f.MorePlaces))
			}
			if diff := cmp.Diff(test.want, places); diff != "" {
				t.Errorf("places of each finding: want -, got +:\n%s", diff)
			}
		})
	}
}
