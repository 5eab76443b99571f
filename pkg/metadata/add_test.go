package metadata_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// beforeAndAfter returns a case's text without the added lines and with them.
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
					t.Errorf("Add returned\n%q\nwant\n%q", got.Data, after)
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
			t.Errorf("Add returned\n%s\nwant\n%s", got.Data, after)
		}
		mustAgree(t, got)
	}
}

func TestAddTwice(t *testing.T) {
	file := parse(t, list("0.1 v1beta1", "0.2 v1beta1"))
	for _, version := range []string{"v0.2.0", "v0.2.9", "v0.1.0-rc.0"} {
		if got, err := file.Add(version, "v1beta1"); err != nil || got != file {
			t.Errorf("adding %s changed the file or failed: %v", version, err)
		}
	}
	_, err := file.Add("v0.2.1", "v1beta2")
	var changed *metadata.ContractChangedError
	if !errors.As(err, &changed) || changed.Series.Contract != "v1beta1" || changed.Contract != "v1beta2" {
		t.Fatalf("%v isn't a *ContractChangedError", err)
	}
	want := "metadata.yaml:7: series v0.2 has contract v1beta1, not v1beta2: the contract of a series applies to all its patch releases and must not change; release the change of contract as a new minor version"
	if err.Error() != want {
		t.Errorf("error =\n%v\nwant\n%s", err, want)
	}
}

func TestAddRefuses(t *testing.T) {
	file := parse(t, list("0.1 v1beta1"))
	var unknown *metadata.ContractError
	for contract, want := range map[string]string{
		"v1beta3":  `adding a series for v0.2.0 to metadata.yaml: Cluster API has no contract "v1beta3": use one of v1beta1, v1beta2`,
		"v1alpha4": `adding a series for v0.2.0 to metadata.yaml: clusterctl refuses providers of contract "v1alpha4": use one of v1beta1, v1beta2`,
		"beta":     `adding a series for v0.2.0 to metadata.yaml: "beta" isn't a contract: a contract is the version of a Cluster API API without its group; use one of v1beta1, v1beta2`,
	} {
		if _, err := file.Add("v0.2.0", contract); !errors.As(err, &unknown) || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	if _, err := file.Add("v0.0.1", "v1alpha4"); err != nil {
		t.Errorf("adding an older series with a past contract: %v", err)
	}
	for _, version := range []string{"0.2.0", "v0.2", "main", "v2147483648.0.0"} {
		if _, err := file.Add(version, "v1beta1"); err == nil {
			t.Errorf("Add accepted version %s", version)
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
			t.Errorf("%s: %v isn't a *StyleError", name, err)
		}
	}
}

// onlyInserted reports whether after is before with one inserted piece, and returns the piece.
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

func TestNew(t *testing.T) {
	file, err := metadata.New("metadata.yaml", "v0.1.0", "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	mustAgree(t, file)
	if p := file.Check(file.Newest(), []string{"v0.1.0"}); len(p) > 0 {
		t.Errorf("the new file has problems: %v", p)
	}
	// A comment in the new file says that its order is newest first.
	next, err := file.Add("v0.2.0", "v1beta2")
	if err != nil || next.Series()[0].Minor != 2 {
		t.Errorf("the second series isn't first: %v", err)
	}
	if _, err := metadata.New("metadata.yaml", "0.1.0", "v1beta1"); err == nil {
		t.Error("New accepted a version without v")
	}
	var unknown *metadata.ContractError
	for _, contract := range []string{"v2", "v1alpha4"} {
		if _, err := metadata.New("metadata.yaml", "v0.1.0", contract); !errors.As(err, &unknown) {
			t.Errorf("%s: %v isn't a *ContractError", contract, err)
		}
	}
}
