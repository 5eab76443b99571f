package checks_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
)

var contextForBuild = context.Background()

// TestList makes sure that every check says what it is.
func TestList(t *testing.T) {
	id := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	seen := map[string]bool{}
	for _, c := range checks.All() {
		if !id.MatchString(c.ID) || seen[c.ID] {
			t.Errorf("id %q is malformed or taken", c.ID)
		}
		seen[c.ID] = true
		if c.Group == "" || c.Severity == "" || c.Title == "" || c.Source == "" || c.Run == nil && c.Group != checks.Ownership {
			t.Errorf("check %s lacks a group, severity, title, source or function", c.ID)
		}
		if page, err := checks.Explain(c.ID); err != nil || len(page) == 0 {
			t.Errorf("check %s has no page: %v", c.ID, err)
		}
	}
}

// TestOwnReleaseIsClean holds this repository's own provider to every check.
func TestOwnReleaseIsClean(t *testing.T) {
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	result, err := checks.Run(t.Context(), &checks.Subject{Release: own})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range result.Findings {
		if f.Severity != checks.Note {
			t.Errorf("%s: %s:%d: %s %s: %s", f.ID, f.File, f.Line, f.Object, f.Path, f.Message)
		}
	}
}
