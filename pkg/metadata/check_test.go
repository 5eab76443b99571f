package metadata_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// short returns problems as "severity id line: message".
func short(problems []metadata.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s %s %d: %s", p.Severity, p.ID, p.Line, p))
	}
	return all
}

// check returns the problems of a file as part of a release of its newest series.
func check(file *metadata.File, tags []string) []metadata.Problem {
	return file.Check(file.Newest(), tags)
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		tags []string
		want []string
	}{
		"nothing wrong": {
			list("0.2 v1beta1", "0.1 v1alpha4"),
			[]string{"v0.1.0-alpha.0", "v0.1.0", "v0.2.0", "api/v0.3.0", "0.4.0", "v0.5", "latest"},
			nil,
		},
		"no kind": {
			strings.Replace(list("0.1 v1beta1"), "kind: Metadata\n", "", 1), nil,
			[]string{"warning metadata-kind 1: kind is missing: clusterctl v1.11.0 refuses the file, later versions accept it: add `kind: Metadata`"},
		},
		"empty kind": {
			strings.Replace(list("0.1 v1beta1"), "Metadata", "", 1), nil,
			[]string{"warning metadata-kind 2: kind is missing: clusterctl v1.11.0 refuses the file, later versions accept it: add `kind: Metadata`"},
		},
		"contracts of the release's own series": {
			list("0.1 v1alpha4"), nil,
			[]string{"error contract-known 4: series v0.1 of the release has contract v1alpha4: clusterctl refuses to install the release, because it supports only v1beta1 and v1beta2: implement one of these contracts in the CRDs, and write that contract"},
		},
		"contracts of other series": {
			list("0.4 v1beta2", "0.3 v1beta7", "0.2 v1alpha4", "0.1 "), nil,
			[]string{
				"warning contract-known 7: series v0.3 has contract v1beta7, which Cluster API never had: write the contract in the labels of its CRDs, one of v1alpha2, v1alpha3, v1alpha4, v1beta1, v1beta2",
				"warning contract-known 13: series v0.1 has no contract: write the contract in the labels of its CRDs, one of v1alpha2, v1alpha3, v1alpha4, v1beta1, v1beta2",
			},
		},
		"an unknown field": {
			list("0.1 v1beta1") + "  contracts: v1beta1\nversion: 1\n", nil,
			[]string{
				`warning metadata-parse 8: metadata.yaml has no field "version", and clusterctl ignores it: remove it or correct its spelling; metadata.yaml has the fields apiVersion, kind, metadata, releaseSeries`,
				`warning metadata-parse 7: a release series has no field "contracts", and clusterctl ignores it: remove it or correct its spelling; a release series has the fields major, minor, contract`,
			},
		},
		"a field twice and a second document": {
			strings.Replace(list("0.1 v1beta1"), "kind: Metadata\n", "kind: Metadata\nkind: Metadata\n", 1) + "---\n\n" + head, nil,
			[]string{
				"warning metadata-parse 10: a second YAML document begins here, but clusterctl reads only the first: keep one document and remove the others with their `---`",
				"warning metadata-parse 3: kind is given a second time (first in line 2): keep one of the two",
			},
		},
		"listed twice": {
			list("0.1 v1beta1", "0.1 v1beta1", "0.2 v1beta1", "0.2 v1beta2"), nil,
			[]string{
				"warning series-duplicate 7: series v0.1 is listed a second time (first in line 4): remove one of the two",
				"error series-duplicate 13: series v0.2 is listed a second time (first in line 10), with contract v1beta2 after v1beta1: clusterctl uses the first for installations and both for upgrade plans: keep the one with the contract in the labels of its CRDs",
			},
		},
		"order, mostly oldest first": {
			list("0.1 v1beta1", "0.2 v1beta1", "0.4 v1beta1", "0.3 v1beta1"), nil,
			[]string{"warning series-order 13: series v0.3 follows v0.4, so the list is sorted neither newest first nor oldest first, and a missing series is hard to see: keep the list oldest first"},
		},
		"order, mostly newest first": {
			list("0.9 v1beta1", "0.10 v1beta1", "0.8 v1beta1", "0.7 v1beta1"), nil,
			[]string{"warning series-order 7: series v0.10 follows v0.9, so the list is sorted neither newest first nor oldest first, and a missing series is hard to see: keep the list newest first"},
		},
		"the newest is missing, a pre-release": {
			list("0.1 v1beta1"), []string{"v0.1.0", "v0.2.0-rc.0"},
			[]string{"error series-present 3: series v0.2 is missing, but v0.2.0-rc.0 is tagged: clusterctl refuses to install it, and refuses every upgrade plan of users of this series and older ones: add it with the contract in the labels of its CRDs: clusterctl release metadata add --version v0.2.0-rc.0 --contract v1beta1"},
		},
		"one between is missing": {
			list("0.1 v1beta1", "0.3 v1beta2"), []string{"v0.1.0", "v0.2.10", "v0.2.9", "v0.2.0-rc.1", "v0.3.0"},
			[]string{"error series-present 3: series v0.2 is missing, but v0.2.0-rc.1 to v0.2.10 (3 tags) are tagged: clusterctl refuses to install it, and refuses every upgrade plan of users of this series and older ones: add it with the contract in the labels of its CRDs: clusterctl release metadata add --version v0.2.10 --contract v1beta1"},
		},
		"the second newest was dropped": {
			list("0.5 v1beta1"), []string{"v0.5.0", "v0.4.8", "v0.3.0"},
			[]string{
				"warning series-dropped 3: series v0.3 is missing, but v0.3.0 is tagged: its users can't upgrade; that is right only if its contract is not one of v1beta1, v1beta2: add it with the contract in the labels of its CRDs: clusterctl release metadata add --version v0.3.0 --contract v1beta1",
				"error series-dropped 3: series v0.4 is missing, but v0.4.8 is tagged: users of this series, the newest or second newest, can't upgrade: add it with the contract in the labels of its CRDs: clusterctl release metadata add --version v0.4.8 --contract v1beta1",
			},
		},
		"old ones were dropped": {
			list("1.1 v1beta2", "1.0 v1beta1"), []string{"v0.4.8", "v1.0.0", "v1.1.0"},
			[]string{"warning series-dropped 3: series v0.4 is missing, but v0.4.8 is tagged: its users can't upgrade; that is right only if its contract is not one of v1beta1, v1beta2: add it with the contract in the labels of its CRDs: clusterctl release metadata add --version v0.4.8 --contract v1beta1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := short(check(parse(t, test.text), test.tags)); !slices.Equal(got, test.want) {
				t.Errorf("problems =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// TestCheckIsCleanAfterAdd checks that the suggested fixes of missing series remove all problems.
func TestCheckIsCleanAfterAdd(t *testing.T) {
	tags := []string{"v0.1.0", "v0.2.0", "v0.3.0-alpha.1", "v1.0.0"}
	file := parse(t, list("0.2 v1beta1"))
	for len(check(file, tags)) > 0 {
		_, arguments, found := strings.Cut(check(file, tags)[0].Fix, "--version ")
		version, contract, both := strings.Cut(arguments, " --contract ")
		if !found || !both {
			t.Fatalf("the fix has no command: %v", check(file, tags)[0])
		}
		next, err := file.Add(version, contract)
		if err != nil || next == file {
			t.Fatalf("adding %s did not change the file: %v", version, err)
		}
		file = next
	}
	if len(file.Series()) != 4 {
		t.Errorf("series = %v, want 4", file.Series())
	}
}

func TestCheckPrevious(t *testing.T) {
	previous := parse(t, list("0.1 v1alpha4", "0.2 v1beta1", "0.3 v1beta1", "0.3 v1beta2"))
	if got := parse(t, list("0.1 v1alpha4", "0.2 v1beta1", "0.3 v1beta1", "0.4 v1beta2")).CheckPrevious(previous, nil); got != nil {
		t.Errorf("problems = %v, want none", got)
	}
	want := []string{
		"warning series-dropped 3: series v0.1 with contract v1alpha4 was listed before and is missing: its users can't upgrade: add it again: clusterctl release metadata add --version v0.1.0 --contract v1alpha4",
		"error series-dropped 3: series v0.2 with contract v1beta1 was listed before and is missing: its users can't upgrade: add it again: clusterctl release metadata add --version v0.2.0 --contract v1beta1",
		"error series-contract-changed 4: series v0.3 had contract v1beta1 before and has v1beta2 now: clusterctl plans upgrades with the newest file, so it assumes a wrong contract for published releases of the series: restore it, and release the change of contract as a new minor version",
	}
	if got := short(parse(t, list("0.3 v1beta2")).CheckPrevious(previous, nil)); !slices.Equal(got, want) {
		t.Errorf("problems =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCheckPreviousWithTags checks that a series that is listed before its first release may change until then.
func TestCheckPreviousWithTags(t *testing.T) {
	previous := parse(t, list("0.4 v1beta1", "0.3 v1beta1", "0.2 v1beta1"))
	file := parse(t, list("0.4 v1beta2", "0.2 v1beta1"))
	for _, test := range []struct {
		tags []string
		want []metadata.ProblemID
	}{
		{nil, []metadata.ProblemID{metadata.ProblemSeriesContractChanged, metadata.ProblemSeriesDropped}},
		{[]string{}, nil},
		{[]string{"v0.2.0"}, nil},
		{[]string{"v0.2.0", "v0.3.0-rc.0"}, []metadata.ProblemID{metadata.ProblemSeriesDropped}},
		{[]string{"v0.4.0"}, []metadata.ProblemID{metadata.ProblemSeriesContractChanged}},
	} {
		var got []metadata.ProblemID
		for _, p := range file.CheckPrevious(previous, test.tags) {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("with tags %v: problems = %v, want %v", test.tags, got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	file := parse(t, list("0.1 v1alpha4", "0.10 v1beta1", "0.2 v1beta2"))
	want := "SERIES  CONTRACT\nv0.1    v1alpha4\nv0.10   v1beta1\nv0.2    v1beta2\n"
	if got := file.Table(nil); got != want {
		t.Errorf("table =\n%s\nwant\n%s", got, want)
	}
	want = `SERIES  CONTRACT  TAGS
v0.1    v1alpha4  v0.1.0-alpha.0 to v0.1.10 (4 tags)
v0.10   v1beta1   v0.10.0
v0.2    v1beta2   -
v1.0    missing   v1.0.0-rc.0
v0.4    missing   v0.4.0 to v0.4.1 (2 tags)
`
	tags := []string{"v0.1.9", "v0.1.10", "v0.1.0", "v0.10.0", "v0.1.0-alpha.0", "v0.4.1", "v1.0.0-rc.0", "v0.4.0", "v0.4.0", "docs"}
	for range 3 {
		if got := file.Table(tags); got != want {
			t.Errorf("table =\n%s\nwant\n%s", got, want)
		}
		slices.Reverse(tags)
	}
	if got := file.Table([]string{}); !strings.Contains(got, "TAGS\nv0.1    v1alpha4  -\n") {
		t.Errorf("table without tags =\n%s\nwant \"-\" for v0.1", got)
	}
	file = parse(t, "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n- {major: 0, minor: 1}\n")
	if got, want := file.Table(nil), "SERIES  CONTRACT\nv0.1    -\n"; got != want {
		t.Errorf("table without a contract =\n%q\nwant\n%q", got, want)
	}
}
