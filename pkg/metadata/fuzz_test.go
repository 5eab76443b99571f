package metadata_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
)

// seed adds the texts of the other tests to the fuzzer's corpus.
func seed(f *testing.F, add func(text string)) {
	f.Helper()
	for _, test := range addCases {
		before, _ := beforeAndAfter(test.text)
		add(head + before)
		add(strings.ReplaceAll(head+before, "\n", "\r\n"))
	}
	add("\uFEFF" + list("0.1 v1beta1", "0.3 v1beta2"))
	add(`{"apiVersion":"clusterctl.cluster.x-k8s.io/v1alpha3","releaseSeries":[{"major":0,"minor":1,"contract":"v1beta1"}]}`)
	add(head + "releaseSeries: &s\n- &a major: 1\n  minor: !!int 2\n  contract: !!str v1beta1\n")
	add(head + "? releaseSeries\n: - major: 0\n    minor: 1\n    contract: v1beta1\n")
}

func FuzzParse(f *testing.F) {
	seed(f, func(text string) { f.Add([]byte(text)) })
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := metadata.Parse("metadata.yaml", data)
		if err != nil {
			if len(ids(t, err)) == 0 || err.Error() == "" {
				t.Fatalf("the error has no problem: %#v", err)
			}
			return
		}
		mustAgree(t, file)
		newest := file.Newest()
		if newest.Major >= 0 && newest.Minor >= 0 {
			if _, err := file.Contract(fmt.Sprintf("v%d.%d.0", newest.Major, newest.Minor)); err != nil {
				t.Fatalf("the newest series has no contract: %v", err)
			}
		}
		for _, p := range file.Check(newest, []string{"v0.1.0", "v1.0.0-rc.0", "v1.2.3", "x"}) {
			if p.ID == "" || p.Severity == "" || p.Line < 0 || p.Message == "" || p.Fix == "" {
				t.Fatalf("the problem has empty fields: %+v", p)
			}
		}
		if file.Table([]string{"v0.1.0"}) == "" {
			t.Fatal("the table is empty")
		}
	})
}

func FuzzAdd(f *testing.F) {
	seed(f, func(text string) {
		f.Add([]byte(text), uint8(0), uint8(2))
		f.Add([]byte(text), uint8(1), uint8(0))
		f.Add([]byte(text), uint8(0), uint8(0))
	})
	f.Fuzz(func(t *testing.T, data []byte, major, minor uint8) {
		file, err := metadata.Parse("metadata.yaml", data)
		if err != nil {
			return
		}
		version := fmt.Sprintf("v%d.%d.0", major, minor)
		added, err := file.Add(version, "v1beta2")
		if err != nil {
			var style *metadata.StyleError
			var changed *metadata.ContractChangedError
			if !errors.As(err, &style) && !errors.As(err, &changed) {
				t.Fatalf("error = %v, want a *StyleError or a *ContractChangedError", err)
			}
			return
		}
		if added == file {
			return
		}
		if _, ok := onlyInserted(data, added.Data); !ok {
			t.Fatalf("Add changed more than it inserted:\n%q\n%q", data, added.Data)
		}
		mustAgree(t, added)
		rest := slices.DeleteFunc(added.Series(), func(s metadata.Series) bool {
			return s.Major == int32(major) && s.Minor == int32(minor) && s.Contract == "v1beta2"
		})
		same := slices.EqualFunc(rest, file.Series(), func(a, b metadata.Series) bool {
			return a.Major == b.Major && a.Minor == b.Minor && a.Contract == b.Contract
		})
		if !same || len(added.Series()) != len(file.Series())+1 {
			t.Fatalf("series = %v, want v%d.%d in addition to %v", added.Series(), major, minor, file.Series())
		}
		if again, err := added.Add(version, "v1beta2"); err != nil || again != added {
			t.Fatalf("adding the series again changes the file: %v", err)
		}
	})
}
