package templates_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// processorCases are texts that a processor that works line by line could process wrongly.
var processorCases = []string{
	"a: b\n", "a: ${B}\nc: d\ne: ${ F }\n", "a: ${B:=1}\nc: ${B}\n", "a: ${B}\nc: ${B:=1}\n",
	"a: ${\nB\n}\nc: d\n", "a: ${B:=x\ny\nz}\nc: $\n", "a: $", "a: $$", "a: $$\n$${b}\n", "a: $\n{B}\n", "${A:=${B}}\n",
	"a: ${B:=x\ny: ${C:=\nz}}\n", "a: \\${B}\n", "a: ${B:=x\\}\n}\n", "a: ${B/x\\/\n/y}\n", "a: b\x00\nc: ${D}\n", "a: ${B\x00}\n", "é: ${É:=ü}\n\xff$\xff\n",
	"a: ${B:" + strings.Repeat("\n", 100) + "=1}\n", "a: ${B C}\n", "a: ${A:2:x}\n", "a: ${A:100}\n", "a: ${#A}\nb: ${A^^}\n", "\r\n${A}\r\n", "${A:=${B}\n}\n${B:-}\n",
}

// equalsClusterctl compares the processor with clusterctl's own, with and without values.
func equalsClusterctl(t *testing.T, text []byte) {
	t.Helper()
	before := bytes.Clone(text)
	ours, theirs := templates.NewProcessor(), yamlprocessor.NewSimpleProcessor()
	message := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	got, gotErr := ours.GetVariableMap(text)
	want, wantErr := theirs.GetVariableMap(text)
	if diff := cmp.Diff(want, got); diff != "" || message(gotErr) != message(wantErr) {
		t.Errorf("GetVariableMap: error = %v, want clusterctl's %v; -clusterctl +got:\n%s", gotErr, wantErr, diff)
	}
	names, _ := ours.GetVariables(text)
	wantNames, _ := theirs.GetVariables(text)
	if !slices.Equal(names, wantNames) {
		t.Errorf("GetVariables = %q, want clusterctl's %q", names, wantNames)
	}
	for _, get := range []func(string) (string, error){
		func(string) (string, error) { return "", errors.New("not set") },
		func(string) (string, error) { return "x: $y", nil },
	} {
		got, gotErr := ours.Process(text, get)
		want, wantErr := theirs.Process(text, get)
		if message(gotErr) != message(wantErr) || !bytes.Equal(got, want) {
			t.Errorf("Process = %q, %v, want clusterctl's %q, %v", got, gotErr, want, wantErr)
		}
	}
	if !bytes.Equal(text, before) {
		t.Error("the processor changed the text")
	}
}

func TestProcessor(t *testing.T) {
	for _, text := range processorCases {
		equalsClusterctl(t, []byte(text))
	}
}

func TestProcessorCorpus(t *testing.T) {
	releases, err := release.Read(filepath.Join(pinned.Corpus(t), "released"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range releases {
		for _, f := range r.Files {
			t.Run(r.String()+"/"+f.Name, func(t *testing.T) { equalsClusterctl(t, f.Data) })
		}
	}
}

// FuzzProcessor checks that the results are those of clusterctl's own processor for every text.
func FuzzProcessor(f *testing.F) {
	for _, text := range processorCases {
		f.Add([]byte(text))
	}
	for _, tc := range syntaxCases {
		f.Add([]byte(tc.text))
	}
	f.Fuzz(equalsClusterctl)
}
