package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// pageOf returns the page of a release with the same text everywhere.
func pageOf(t *testing.T, text string) string {
	t.Helper()
	r, err := release.New(release.Provider{Name: "demo", Type: "InfrastructureProvider"}, "v0.1.0", []release.File{
		{Name: "infrastructure-components.yaml", Data: []byte("kind: x\n")},
		{Name: "cluster-template.yaml", Data: []byte("# " + text + "\nkind: x\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	object := manifest.Object{APIVersion: "v1", Kind: text, Namespace: text, Name: text}
	f := checks.Finding{
		ID: "image-canonical", Severity: checks.Error, Message: text, Fix: text,
		Place: manifest.Place{File: "cluster-template.yaml", Line: 1, Path: text, Object: object},
		MorePlaces: []manifest.Place{
			{File: text, Object: object, Path: text},
		},
	}
	world := &move.World{Source: text}
	var out bytes.Buffer
	report := &Report{Tool: text, Entries: []Entry{{Folder: text, Result: &checks.Result{
		Release: r, Findings: []checks.Finding{f}, Suppressed: []checks.Suppressed{{Finding: f, Reason: text}},
		Graphs: []checks.TemplateGraph{{Template: text, Graph: move.Discover(t.Context(), world, text)}},
	}}}}
	if err := report.Write("html", &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestHTMLEscapes checks that texts of a release add no elements to the page.
func TestHTMLEscapes(t *testing.T) {
	tags := func(page string) []string { return regexp.MustCompile(`<[a-zA-Z/!][^\s>]*`).FindAllString(page, -1) }
	want := tags(pageOf(t, "harmless"))
	for _, text := range []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "</pre></details><b>", "'-->]]>", "javascript:x\x00\x1b[31m"} {
		page := pageOf(t, text)
		if got := tags(page); !slices.Equal(got, want) {
			t.Errorf("%q: the page has the elements %q, want %q", text, got, want)
		}
		if strings.ContainsAny(page, "\x00\x1b") {
			t.Errorf("%q: the page has a control character", text)
		}
	}
}

// TestHTMLPolicy checks that the page's policy permits its own script, and that the page loads no other files.
func TestHTMLPolicy(t *testing.T) {
	page := pageOf(t, "x")
	_, script, _ := strings.Cut(page, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	if want := "script-src &#39;sha256-" + base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "+", "&#43;")) {
		t.Errorf("the policy does not have the hash of the script, %s", want)
	}
	for _, source := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(source[1], "#") && !strings.HasPrefix(source[1], "data:image/svg+xml;base64,") && !strings.HasPrefix(source[1], "data:image/svg&#43;xml;base64,") {
			t.Errorf("the page refers to %s", source[1])
		}
	}
}
