package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var update = flag.Bool("update", false, "rewrite the golden files and the schema of the JSON report")

// sample returns a report with all kinds of content.
func sample(t *testing.T) *Report {
	t.Helper()
	demo := release.Provider{Name: "demo", Type: clusterctlv1.InfrastructureProviderType}
	first, err := release.New(demo, "v0.1.0", []release.File{
		{Name: "infrastructure-components.yaml", Data: []byte("kind: Deployment\nspec:\n  image: controller:latest\n")},
		{Name: "cluster-template.yaml", Data: []byte("\x1b[31m\ttab: " + strings.Repeat("x", 500) + "\r\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	second, err := release.New(demo, "v0.2.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	image := checks.Finding{
		ID: "image-canonical", Severity: checks.Error, Source: "a page, a heading",
		Place: manifest.Place{
			File: "infrastructure-components.yaml", Document: 1, Path: "spec.image", Line: 3, Column: 3,
			Object: manifest.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "demo-system", Name: "demo"},
		},
		Message: "the image is not canonical,\nand clusterctl refuses it: 100%", Fix: "name its registry",
	}
	return &Report{Tool: "v1.2.3", Entries: []Entry{
		{Folder: "out/release/infrastructure-demo/v0.1.0", Result: &checks.Result{
			Release: first,
			Findings: []checks.Finding{
				{ID: "metadata-present", Severity: checks.Error, Source: "a page", Message: "there is no metadata.yaml", Fix: "publish it"},
				image,
				{ID: "variable-default", Severity: checks.Warning, Source: "a page", Message: "far to the right", Fix: "move it",
					Place: manifest.Place{File: "cluster-template.yaml", Document: 1, Line: 1, Column: 400},
					MorePlaces: []manifest.Place{
						{File: "cluster-template.yaml", Document: 2, Line: 8},
						{File: "cluster-template-ha.yaml", Path: "spec", Object: manifest.Object{Kind: "Secret", Name: "demo"}},
						{File: "cluster-template-ha.yaml", Line: 9},
					}},
				{ID: "default-template", Severity: checks.Note, Source: "a page", Message: "a line that is not there", Fix: "look elsewhere",
					Place: manifest.Place{File: "cluster-template.yaml", Line: 99}},
			},
			Suppressed: []checks.Suppressed{{Finding: image, Reason: "it is right so"}},
		}},
		{Result: &checks.Result{Release: second}},
	}}
}

// TestGolden compares the formats that do not list all checks with golden files.
func TestGolden(t *testing.T) {
	for _, name := range []string{"text", "json", "github", "gitlab", "html"} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := sample(t).Write(name, &out); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "report."+name)
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("want -, got +; -update rewrites %s:\n%s", golden, diff)
			}
		})
	}
}

func TestTextHasColoursOnlyOnRequest(t *testing.T) {
	var plain, colored bytes.Buffer
	r := sample(t)
	if err := r.Write("text", &plain); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Error("the plain report has an escape sequence")
	}
	r.Color = true
	if err := r.Write("text", &colored); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(colored.String(), "\x1b[31;1merror") {
		t.Error("the coloured report has no red error")
	}
	if strings.Contains(colored.String(), "\x1b[31m\t") || strings.Contains(colored.String(), "\x1b[31m ") {
		t.Error("the report has an escape sequence from the file")
	}
}

func TestFails(t *testing.T) {
	r := sample(t)
	r.Entries[0].Findings = r.Entries[0].Findings[2:]
	for severity, want := range map[checks.Severity]bool{checks.Error: false, checks.Warning: true, checks.Note: true} {
		if got := r.Fails(severity); got != want {
			t.Errorf("Fails(%s) = %v, want %v", severity, got, want)
		}
	}
}

// TestJSONSchema checks that docs/report.schema.json matches the report's types and a report.
func TestJSONSchema(t *testing.T) {
	var out bytes.Buffer
	if err := sample(t).Write("json", &out); err != nil {
		t.Fatal(err)
	}
	schematest.Check(t, "report.schema.json", &jsonReport{}, out.Bytes(), *update)
}

func TestSARIF(t *testing.T) {
	log, err := newSARIF(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Validate(); err != nil {
		t.Error(err)
	}
	run := log.Runs[0]
	if len(run.Tool.Driver.Rules) != len(catalog.All()) {
		t.Errorf("got %d rules, want one for each of the %d checks", len(run.Tool.Driver.Rules), len(catalog.All()))
	}
	if len(run.Results) != 5 {
		t.Fatalf("got %d results, want 4 and a suppressed one", len(run.Results))
	}
	location := run.Results[1].Locations[0].PhysicalLocation
	if got, want := *location.ArtifactLocation.URI, "out/release/infrastructure-demo/v0.1.0/infrastructure-components.yaml"; got != want {
		t.Errorf("the location is %s, want %s", got, want)
	}
	if *location.Region.StartLine != 3 || *location.Region.StartColumn != 3 {
		t.Errorf("the region is %d:%d, want 3:3", *location.Region.StartLine, *location.Region.StartColumn)
	}
	if len(run.Results[2].Locations) != 4 {
		t.Errorf("got %d locations, want 4", len(run.Results[2].Locations))
	}
	if len(run.Results[4].Suppressions) != 1 || *run.Results[4].Suppressions[0].Justification != "it is right so" {
		t.Error("the suppressed finding has no suppression with its reason")
	}
}

func TestJUnit(t *testing.T) {
	var out bytes.Buffer
	if err := sample(t).Write("junit", &out); err != nil {
		t.Fatal(err)
	}
	var suites junitSuites
	if err := xml.Unmarshal(out.Bytes(), &suites); err != nil {
		t.Fatal(err)
	}
	if len(suites.Suites) != 2 {
		t.Fatalf("got %d suites, want one for each release", len(suites.Suites))
	}
	first, second := suites.Suites[0], suites.Suites[1]
	if first.Failures == 0 || first.Tests != len(first.Cases) {
		t.Errorf("the first suite has %d failures and %d tests for %d cases", first.Failures, first.Tests, len(first.Cases))
	}
	ofReleases := len(slices.DeleteFunc(catalog.All(), func(c checks.Check) bool { return c.Run == nil }))
	if second.Failures != 0 || second.Tests != ofReleases {
		t.Errorf("the clean release has %d failures in %d tests, want 0 in %d", second.Failures, second.Tests, ofReleases)
	}
}

func TestUnknownFormat(t *testing.T) {
	if err := sample(t).Write("yaml", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "text, json, sarif") {
		t.Errorf("got the error %v, want one that lists the formats", err)
	}
}
