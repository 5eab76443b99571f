package metadata_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// ids returns the IDs of the problems in an error of Parse.
func ids(t testing.TB, err error) []metadata.ProblemID {
	t.Helper()
	if err == nil {
		return nil
	}
	var parseError *metadata.ParseError
	if !errors.As(err, &parseError) {
		t.Fatalf("%v isn't a *ParseError", err)
	}
	var all []metadata.ProblemID
	for _, p := range parseError.Problems {
		if p.Severity == "" || p.Message == "" || p.Fix == "" {
			t.Errorf("the problem has no severity, message or fix: %+v", p)
		}
		all = append(all, p.ID)
	}
	if !slices.ContainsFunc(parseError.Problems, func(p metadata.Problem) bool { return p.Severity == metadata.SeverityError }) {
		t.Errorf("no problem has severity error: %v", err)
	}
	return all
}

func parse(t testing.TB, text string) *metadata.File {
	t.Helper()
	file, err := metadata.Parse("metadata.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// list returns a metadata.yaml with the given series, such as "1.2 v1beta1".
func list(series ...string) string {
	var text strings.Builder
	text.WriteString(head + "releaseSeries:\n")
	for _, s := range series {
		version, contract, _ := strings.Cut(s, " ")
		major, minor, _ := strings.Cut(version, ".")
		text.WriteString("- major: " + major + "\n  minor: " + minor + "\n  contract: " + contract + "\n")
	}
	return text.String()
}

func TestParseErrors(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty": {"", "m.yaml: the file is empty: begin with `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3`, `kind: Metadata` and a list `releaseSeries`"},
		"misspelt": {
			head + "releaseseries: []\n",
			"m.yaml:3: metadata.yaml has no field \"releaseseries\", and clusterctl ignores it: remove it or correct its spelling; metadata.yaml has the fields apiVersion, kind, metadata, releaseSeries\n" +
				"m.yaml:1: releaseSeries is missing, and clusterctl accepts no release without a series: list each major.minor version that was released, with its contract",
		},
		"apiVersion": {strings.Replace(list("1.2 v1beta1"), "v1alpha3", "v1alpha4", 1), "m.yaml:1: apiVersion is \"clusterctl.cluster.x-k8s.io/v1alpha4\", which clusterctl refuses: write `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3`; the contract goes into the series"},
		"number":     {list("1.x v1beta1"), "m.yaml:5: minor is \"x\": write a plain number such as `minor: 1`, without quotes"},
		"contract":   {list("1.2 v1beta1", "1.1 [v1beta1]"), "m.yaml:9: the contract of a release series is a list: write the contract in the labels of its CRDs, e.g. `contract: v1beta2`"},
		"all at once": {
			"kind: Provider\nreleaseSeries:\n- major: 1\n  minor: 1\n- minor: a\n  contract: x\n",
			"m.yaml:1: apiVersion is missing, and clusterctl refuses the file without it: add `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3`\n" +
				"m.yaml:1: kind is \"Provider\", which clusterctl refuses: write `kind: Metadata`\n" +
				"m.yaml:5: minor is \"a\": write a plain number such as `minor: 1`, without quotes",
		},
		"UTF-16": {"\xff\xfea\x00", "m.yaml: the file isn't a UTF-8 text: save it as UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := metadata.Parse("m.yaml", []byte(test.text))
			ids(t, err)
			if err == nil || err.Error() != test.want {
				t.Errorf("error =\n%v\nwant\n%s", err, test.want)
			}
		})
	}
}

func TestSyntaxErrorNamesTheLine(t *testing.T) {
	_, err := metadata.Parse("m.yaml", []byte(head+"releaseSeries:\n- major: 1\n   minor: 2\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "m.yaml:") || !strings.Contains(err.Error(), "the file isn't YAML: ") {
		t.Errorf("error = %v, want one that the file isn't YAML", err)
	}
	if got := ids(t, err); len(got) != 1 || got[0] != metadata.ProblemParse {
		t.Errorf("problems = %v, want %v", got, metadata.ProblemParse)
	}
}

func TestSeries(t *testing.T) {
	file := parse(t, list("0.9 v1alpha4", "1.10 v1beta2", "1.2 v1beta1"))
	want := []metadata.Series{
		{Major: 0, Minor: 9, Contract: "v1alpha4", Line: 4},
		{Major: 1, Minor: 10, Contract: "v1beta2", Line: 7},
		{Major: 1, Minor: 2, Contract: "v1beta1", Line: 10},
	}
	if got := file.Series(); !slices.Equal(got, want) {
		t.Errorf("Series() = %+v, want %+v", got, want)
	}
	if newest := file.Newest(); newest != want[1] {
		t.Errorf("Newest() = %v, want %v", newest, want[1])
	}
	for version, series := range map[string]string{
		"v1.2.0": "v1.2", "v1.2.77": "v1.2", "1.2.0": "v1.2", "v1.10.0-rc.0": "v1.10", "v1.10.0+build": "v1.10",
		"v1.1.0": "", "v2.2.0": "", "v1.2": "", "main": "", "v99999999999.0.0": "",
	} {
		s, ok := file.SeriesFor(version)
		if ok != (series != "") || (ok && s.String() != series) {
			t.Errorf("SeriesFor(%q) = %s, %v, want %q", version, s, ok, series)
		}
	}
}

func TestContract(t *testing.T) {
	text := list("0.1 v1beta1", "0.2 v1beta2")
	file := parse(t, text)
	if contract, err := file.Contract("v0.1.7"); err != nil || contract != "v1beta1" {
		t.Errorf("Contract(v0.1.7) = %q, %v, want v1beta1", contract, err)
	}
	if _, err := file.Contract("0.1.7"); err == nil {
		t.Error("Contract accepted a version without v")
	}
	_, err := file.Contract("v0.3.0-rc.0")
	var missing *metadata.NoSeriesError
	if !errors.As(err, &missing) {
		t.Fatalf("%v isn't a *NoSeriesError", err)
	}
	want := "metadata.yaml has no release series for v0.3.0-rc.0, only for v0.1, v0.2: clusterctl refuses to install such a release, and every `clusterctl upgrade plan` that includes it fails: add the series, with the contract in the labels of the release's CRDs: clusterctl release metadata add --version v0.3.0-rc.0 --contract v1beta2"
	if err.Error() != want {
		t.Errorf("error =\n%v\nwant\n%s", err, want)
	}
	for path, command := range map[string]string{
		"./metadata.yaml":        "clusterctl release metadata add --version v0.0.1 --contract v1beta1",
		"deploy/metadata.yaml":   "clusterctl release metadata add --version v0.0.1 --contract v1beta1 --file deploy/metadata.yaml",
		"my files/metadata.yaml": "clusterctl release metadata add --version v0.0.1 --contract v1beta1 --file 'my files/metadata.yaml'",
	} {
		elsewhere, err := metadata.Parse(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := elsewhere.Contract("v0.0.1"); !errors.As(err, &missing) || missing.Command != command {
			t.Errorf("command for %s = %q, want %q", path, missing.Command, command)
		}
	}
	if _, err := file.Contract("v99999999999.0.0"); !errors.As(err, &missing) {
		t.Errorf("%v isn't a *NoSeriesError", err)
	}
}
