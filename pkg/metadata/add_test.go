package metadata_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// Each case is a text in which a line that begins with "+" is what Add is to write: without those
// lines it is the file before, and with them the file after.
var addCases = map[string]struct {
	version, contract, text string
}{
	"newest first": {"v1.3.0", "v1beta2", `
releaseSeries:
+- major: 1
+  minor: 3
+  contract: v1beta2
- major: 1
  minor: 2
  contract: v1beta1
- major: 1
  minor: 1
  contract: v1beta1
`},
	"oldest first, indented": {"v0.3.0", "v1beta2", `
releaseSeries:
  - major: 0
    minor: 1
    contract: v1beta1
  - major: 0
    minor: 2
    contract: v1beta1
+  - major: 0
+    minor: 3
+    contract: v1beta2
`},
	"a single series": {"v0.2.0", "v1beta2", `
releaseSeries:
+- major: 0
+  minor: 2
+  contract: v1beta2
- major: 0
  minor: 1
  contract: v1beta1
`},
	"an older one than a single series": {"v0.1.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 2
  contract: v1beta2
+- major: 0
+  minor: 1
+  contract: v1beta1
`},
	"in the middle": {"v0.10.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 9
  contract: v1beta1
+- major: 0
+  minor: 10
+  contract: v1beta1
- major: 0
  minor: 11
  contract: v1beta2
`},
	"one misplaced": {"v1.4.0", "v1beta2", `
releaseSeries:
+- {major: 1, minor: 4, contract: v1beta2}
- {major: 1, minor: 3, contract: v1beta1}
- {major: 1, minor: 1, contract: v1beta1}
- {major: 1, minor: 2, contract: v1beta1}
- {major: 1, minor: 0, contract: v1beta1}
`},
	"no order": {"v1.4.0", "v1beta2", `
releaseSeries:
- {major: 1, minor: 1, contract: v1beta1}
- {major: 1, minor: 3, contract: v1beta1}
- {major: 1, minor: 2, contract: v1beta1}
+- {major: 1, minor: 4, contract: v1beta2}
`},
	"comments belong to the series below or above": {"v0.3.0", "v1beta2", `
# how series work

releaseSeries: # the list
  # the first of all
  - major: 0 # zero
    minor: 1
    contract: v1beta1
    # never finished
  # the second
  - # with a dash of its own
    major: 0
    minor: 2 # two
    contract: v1beta1 # old
    # about 0.2
+  -
+    major: 0
+    minor: 3
+    contract: v1beta2
  # the end

# more
`},
	"comment above the first": {"v0.3.0", "v1beta2", `
releaseSeries:
# newest first

+- major: 0
+  minor: 3
+  contract: v1beta2
# the new API
- major: 0
  minor: 2
  contract: v1beta1
# the old API
- major: 0
  minor: 1
  contract: v1beta1
`},
	"comments in the middle": {"v0.2.0", "v1beta1", `
releaseSeries:
- major: 0
  minor: 3
# odd place
  contract: v1beta1
  # about 0.3
+- major: 0
+  minor: 2
+  contract: v1beta1
# about 0.1
- major: 0
  minor: 1
  contract: v1beta1
`},
	"keys after the list": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
metadata:
  name: x
`},
	"blank lines between": {"v0.3.0", "v1beta2", `
releaseSeries:

+- major: 0
+  minor: 3
+  contract: v1beta2
+
- major: 0
  minor: 2
  contract: v1beta1

- major: 0
  minor: 1
  contract: v1beta1

`},
	"blank lines between, at the end": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1

# second
- major: 0
  minor: 2
  contract: v1beta1
+
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
	"quotes, order of fields and spaces": {"v0.3.0", "v1beta2", `
releaseSeries:
-   contract:  "v1beta1"
    "major": 0
    minor:   1
-   contract: 'v1beta1'
    "major": 0
    minor:   2
+-   contract: 'v1beta2'
+    "major": 0
+    minor:   3
`},
	"anchors are not copied": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: &old v1beta1
- major: 0
  minor: 2
  contract: *old
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
	"a series without a major": {"v1.0.0", "v1beta2", `
releaseSeries:
+  - major: 1
+    minor: 0
+    contract: v1beta2
  - minor: 2
    contract: v1beta1
`},
	"document markers": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
...
`},
	"braces in lines": {"v0.3.0", "v1beta2", `
releaseSeries:
  - { major: 0, minor: 1, contract: "v1beta1" } # old
  - { major: 0, minor: 2, contract: "v1beta1" } # {}
+  - { major: 0, minor: 3, contract: "v1beta2" }
`},
	"brackets over lines": {"v0.1.0", "v1beta1", `
releaseSeries: [
  {major: 0, minor: 3, contract: v1beta1},
  {major: 0, minor: 2, contract: v1beta1},
+  {major: 0, minor: 1, contract: v1beta1},
  {major: 0, minor: 0, contract: v1beta1}
]
`},
	"a folded contract": {"v0.3.0", "v1beta2", `
releaseSeries:
- major: 0
  minor: 1
  contract: v1beta1
- major: 0
  minor: 2
  contract: >-
    v1beta1
+- major: 0
+  minor: 3
+  contract: v1beta2
`},
}

// beforeAndAfter splits a case's text.
func beforeAndAfter(text string) (string, string) {
	var before, after strings.Builder
	for line := range strings.Lines(text) {
		if added, ok := strings.CutPrefix(line, "+"); ok {
			after.WriteString(added)
			continue
		}
		before.WriteString(line)
		after.WriteString(line)
	}
	return before.String(), after.String()
}

func TestAdd(t *testing.T) {
	for name, test := range addCases {
		for breaks, prepare := range map[string]func(string) string{
			"LF":                  func(s string) string { return s },
			"CRLF":                func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
			"no final line break": func(s string) string { return strings.TrimSuffix(s, "\n") },
			"byte order mark":     func(s string) string { return "\uFEFF" + s },
		} {
			t.Run(name+"/"+breaks, func(t *testing.T) {
				before, after := beforeAndAfter("---\n" + head + strings.TrimPrefix(test.text, "\n"))
				before, after = prepare(before), prepare(after)
				got, err := parse(t, before).Add(test.version, test.contract)
				if err != nil {
					t.Fatal(err)
				}
				if string(got.Data) != after {
					t.Errorf("Add made\n%q\nexpected\n%q", got.Data, after)
				}
				mustAgree(t, got)
			})
		}
	}
}

func TestAddToOneLine(t *testing.T) {
	const apiVersion = "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\n"
	for before, after := range map[string]string{
		apiVersion + "releaseSeries: [{major: 0, minor: 1, contract: v1beta1}]": apiVersion + "releaseSeries: [{major: 0, minor: 2, contract: v1beta2}, {major: 0, minor: 1, contract: v1beta1}]",
		apiVersion + "releaseSeries: [ {major: 0, minor: 0, contract: v1beta1} , {major: 0, minor: 1, contract: v1beta1} ] # ok\n": apiVersion +
			"releaseSeries: [ {major: 0, minor: 0, contract: v1beta1} , {major: 0, minor: 1, contract: v1beta1} , {major: 0, minor: 2, contract: v1beta2} ] # ok\n",
		apiVersion + "releaseSeries: [\n  {major: 0, minor: 1, contract: v1beta1,},\n]\n": apiVersion + "releaseSeries: [\n  {major: 0, minor: 2, contract: v1beta2,},\n  {major: 0, minor: 1, contract: v1beta1,},\n]\n",
		"\uFEFF" + `{"metadata":{"name":"é"},"apiVersion":"clusterctl.cluster.x-k8s.io/v1alpha3","releaseSeries":[{"major":0,"minor":1,"contract":"v1beta1"}]}`: "\uFEFF" +
			`{"metadata":{"name":"é"},"apiVersion":"clusterctl.cluster.x-k8s.io/v1alpha3","releaseSeries":[{"major":0,"minor":2,"contract":"v1beta2"}, {"major":0,"minor":1,"contract":"v1beta1"}]}`,
	} {
		got, err := parse(t, before).Add("v0.2.0", "v1beta2")
		if err != nil {
			t.Errorf("%s: %v", before, err)
			continue
		}
		if string(got.Data) != after {
			t.Errorf("Add made\n%s\nexpected\n%s", got.Data, after)
		}
		mustAgree(t, got)
	}
}

func TestAddTwice(t *testing.T) {
	file := parse(t, list("0.1 v1beta1", "0.2 v1beta1"))
	for _, version := range []string{"v0.2.0", "v0.2.9", "v0.1.0-rc.0"} {
		if got, err := file.Add(version, "v1beta1"); err != nil || got != file {
			t.Errorf("%s: the file wasn't left alone: %v", version, err)
		}
	}
	_, err := file.Add("v0.2.1", "v1beta2")
	var changed *metadata.ContractChangedError
	if !errors.As(err, &changed) || changed.Series.Contract != "v1beta1" || changed.Contract != "v1beta2" {
		t.Fatalf("%v is no *ContractChangedError", err)
	}
	want := "metadata.yaml:7: series v0.2 has contract v1beta1, not v1beta2: the contract of a series is that of all its patch releases and stays as it is; release the change of contract as a new minor version"
	if err.Error() != want {
		t.Errorf("error is\n%v\nexpected\n%s", err, want)
	}
}

func TestAddRefuses(t *testing.T) {
	file := parse(t, list("0.1 v1beta1"))
	var unknown *metadata.UnknownContractError
	for contract, want := range map[string]string{
		"v1beta3": `adding a series for v0.2.0 to metadata.yaml: Cluster API has no contract "v1beta3": use one of v1alpha2, v1alpha3, v1alpha4, v1beta1, v1beta2`,
		"beta":    `adding a series for v0.2.0 to metadata.yaml: "beta" is no contract: a contract is the version of a Cluster API API without its group; use one of v1alpha2, v1alpha3, v1alpha4, v1beta1, v1beta2`,
	} {
		if _, err := file.Add("v0.2.0", contract); !errors.As(err, &unknown) || err.Error() != want {
			t.Errorf("error is %v, expected %s", err, want)
		}
	}
	for _, version := range []string{"0.2.0", "v0.2", "main", "v2147483648.0.0"} {
		if _, err := file.Add(version, "v1beta1"); err == nil {
			t.Errorf("version %s was taken", version)
		}
	}
	var style *metadata.StyleError
	for name, text := range map[string]string{
		"old Mac line breaks":    strings.ReplaceAll(list("0.1 v1beta1"), "\n", "\r"),
		"question marks":         head + "? releaseSeries\n: - major: 0\n    minor: 1\n    contract: v1beta1\n",
		"comments in brackets":   head + "releaseSeries: [\n  {major: 0, minor: 1, # one\n  contract: v1beta1}\n]\n",
		"anchor in brackets":     head + "releaseSeries: [{major: 0, minor: 1, contract: &c v1beta1}]\n",
		"comment between braces": head + "releaseSeries: [\n  {major: 0, minor: 2, contract: v1beta1}, # two\n  {major: 0, minor: 1, contract: v1beta1}\n]\n",
	} {
		_, err := parse(t, text).Add("v0.3.0", "v1beta1")
		if !errors.As(err, &style) || !strings.Contains(err.Error(), "add it by hand, with major: 0, minor: 3 and contract: v1beta1") {
			t.Errorf("%s: %v is no *StyleError", name, err)
		}
	}
}

// onlyInserted says whether the new text is the old one with one piece put in, and returns it.
func onlyInserted(before, after []byte) (string, bool) {
	front := 0
	for front < len(before) && front < len(after) && before[front] == after[front] {
		front++
	}
	for ; front >= 0; front-- {
		if added := len(after) - len(before); added >= 0 && bytes.Equal(before[front:], after[front+added:]) {
			return string(after[front : front+added]), true
		}
	}
	return "", false
}

func TestAddToCorpus(t *testing.T) {
	for path, data := range corpus(t) {
		t.Run(path, func(t *testing.T) {
			file, err := metadata.Parse(path, data)
			if err != nil {
				t.Fatal(err)
			}
			mustAgree(t, file)
			if p := file.Check(nil); slices.ContainsFunc(p, func(p metadata.Problem) bool { return p.ID != metadata.ProblemKind }) {
				t.Errorf("problems: %v", p)
			}
			newest := file.Newest()
			for _, version := range []string{
				fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor+1), fmt.Sprintf("v%d.0.0-rc.0", newest.Major+1), "v0.0.1",
			} {
				added, err := file.Add(version, "v1beta2")
				if err != nil {
					t.Fatal(err)
				}
				mustAgree(t, added)
				lines, ok := onlyInserted(data, added.Data)
				if !ok || strings.Count(lines, "\n") != 3 || strings.Contains(lines, "#") || !strings.Contains(lines, "contract: v1beta2") {
					t.Errorf("%s: what was added isn't three lines: %q", version, lines)
				}
				if strings.Contains(string(data), "\r\n") && strings.Count(lines, "\r\n") != 3 {
					t.Errorf("%s: line breaks are not those of the file: %q", version, lines)
				}
				if p := added.Check(nil); slices.ContainsFunc(p, func(p metadata.Problem) bool { return p.ID != metadata.ProblemKind }) {
					t.Errorf("%s: problems afterwards: %v", version, p)
				}
				if again, err := added.Add(version, "v1beta2"); err != nil || again != added {
					t.Errorf("%s: adding it again changes the file: %v", version, err)
				}
			}
		})
	}
}
