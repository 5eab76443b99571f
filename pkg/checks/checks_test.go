package checks_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var contextForBuild = context.Background()

// TestList checks that every check has an ID, a group, a severity, a title, a source, a function and a page.
func TestList(t *testing.T) {
	id := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	seen := map[string]bool{}
	for _, c := range catalog.All() {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("ID %q is malformed or not unique", c.ID)
		}
		seen[c.ID] = true
		if c.Group == "" || c.Severity == "" || c.Title == "" || c.Source == "" || c.Run == nil && c.Group != checks.Ownership && c.ID != "suppression-unused" {
			t.Errorf("check %s lacks a group, severity, title, source or function", c.ID)
		}
		if page, err := c.Page(); err != nil || len(page) == 0 {
			t.Errorf("check %s has no page: %v", c.ID, err)
		}
	}
}

// TestOwnReleaseIsClean runs every check on the release of this repository's own provider.
func TestOwnReleaseIsClean(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	result, err := catalog.All().Run(t.Context(), &checks.Subject{Release: own})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		if f.Severity != checks.Note {
			t.Errorf("%s: %s:%d: %s %s: %s", f.ID, f.File, f.Line, f.Object, f.Path, f.Message)
		}
	}
}

// TestOneFindingForOneCause checks that a report has one finding for a defect that two templates share, and
// that a file that clusterctl does not read has no errors.
func TestOneFindingForOneCause(t *testing.T) {
	const (
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
		namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
		cluster   = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: %s, annotations: {a: %q}}\n"
		class     = "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: ClusterClass\nmetadata: {name: a}\n"
	)
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{Provider: own.Provider, Version: own.Version, Files: []release.File{
		{Name: "cluster-template-a.yaml", Data: []byte(secret + namespace + fmt.Sprintf(cluster, "one", "${A}"))},
		{Name: "cluster-template-b.yaml", Data: []byte(secret + namespace + fmt.Sprintf(cluster, "two", "${B}"))},
		{Name: "my-class.yaml", Data: []byte(secret + namespace + class)},
	}}
	result, err := catalog.All().Run(t.Context(), &checks.Subject{Release: r})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range result.Findings {
		switch f.ID {
		case "template-secret-owner", "template-namespace-object", "template-variable-common", "template-variable-documented":
			got = append(got, fmt.Sprintf("%s %s %s %d", f.Severity, f.ID, f.File, 1+len(f.MorePlaces)))
		}
	}
	want := []string{
		"note template-variable-documented cluster-template-a.yaml 2",
		"warning template-secret-owner cluster-template-a.yaml 3",
		"error template-namespace-object cluster-template-a.yaml 1",
		"warning template-variable-common cluster-template-a.yaml 2",
		"error template-namespace-object cluster-template-b.yaml 1",
		"warning template-namespace-object my-class.yaml 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}
