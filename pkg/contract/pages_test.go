package contract_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
)

// contractPages returns the folder with the contract pages of the Cluster API version in this module's go.mod.
func contractPages(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = pinned.Root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("finding Cluster API's module: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "docs", "book", "src", "developer", "providers", "contracts")
}

// row is a rule in the table of a page.
type row struct{ name, mandatory, note string }

// tableRows returns the rows of a page's rules table.
func tableRows(page string) []row {
	var rows []row
	in := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case len(cells) == 3 && cells[0] == "Rule":
			in = true
		case in && !strings.HasPrefix(cells[0], "--"):
			rows = append(rows, row{strings.TrimSuffix(strings.TrimPrefix(cells[0], "["), "]"), cells[1], cells[2]})
		}
	}
	return rows
}

// TestRulesMatchPages compares the rules with the tables of the contract pages, row by row: a new row in a newer
// Cluster API version needs a new rule.
func TestRulesMatchPages(t *testing.T) {
	pages := contractPages(t)
	rulesByPage := map[string][]row{}
	for _, r := range contract.Rules() {
		if r.Resource == contract.IPAM {
			continue
		}
		mandatory := "No"
		if r.Mandatory {
			mandatory = "Yes"
		}
		rulesByPage[r.Page] = append(rulesByPage[r.Page], row{r.Name, mandatory, r.Note})
	}
	if len(rulesByPage) != 5 {
		t.Errorf("the rules are from %d pages with a table, want 5", len(rulesByPage))
	}
	for page, rules := range rulesByPage {
		data, err := os.ReadFile(filepath.Join(pages, page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		if rows := tableRows(string(data)); !slices.Equal(rows, rules) {
			t.Errorf("rules of %s =\n%q\nwant the rows of the page\n%q", page, rules, rows)
		}
		for _, r := range contract.Rules() {
			if r.Page == page && !strings.Contains(string(data), "\n### "+r.Heading()+"\n") {
				t.Errorf("%s has no section %q", page, r.Heading())
			}
		}
	}
}

// TestIPAMRules compares the rules of pools with the numbered list of their page.
func TestIPAMRules(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(contractPages(t), "ipam.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## Data Types\n")
	section, _, _ = strings.Cut(section, "\n## ")
	items := regexp.MustCompile(`(?m)^\d\. (\w+) (.*)$`).FindAllStringSubmatch(section, -1)
	var rules []contract.Rule
	for _, r := range contract.Rules() {
		if r.Resource == contract.IPAM {
			rules = append(rules, r)
		}
	}
	if len(items) != len(rules) {
		t.Fatalf("got %d rules, want %d as on the page: %q", len(rules), len(items), items)
	}
	words := []string{"API group", "CustomResourceDefinition", "type metadata", "status.conditions"}
	for i, r := range rules {
		if r.Mandatory != (items[i][1] == "Must") || !strings.Contains(items[i][2], words[i]) {
			t.Errorf("rule %s (mandatory: %v) does not match the page: %q", r.ID, r.Mandatory, items[i][0])
		}
	}
}

// TestNoOtherPageHasRules checks that no other contract page has a rules table.
func TestNoOtherPageHasRules(t *testing.T) {
	pages := contractPages(t)
	entries, err := os.ReadDir(pages)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, r := range contract.Rules() {
		known[r.Page+".md"] = true
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !known[e.Name()] && len(tableRows(string(data))) > 0 {
			t.Errorf("%s has a rules table, but no rule refers to the page", e.Name())
		}
	}
}

// TestRules checks the ID of each rule, and that exactly the visible rules have a title and advice.
func TestRules(t *testing.T) {
	id := regexp.MustCompile(`^[a-z][a-z-]*[a-z]$`)
	seen := map[string]bool{}
	for _, r := range contract.Rules() {
		if !id.MatchString(r.ID) || seen[r.ID] {
			t.Errorf("ID %q is malformed or not unique", r.ID)
		}
		seen[r.ID] = true
		if r.Visible() != (r.Title != "" && r.Fix != "") {
			t.Errorf("rule %s: visible rules need a title and advice, other rules must not have them", r.ID)
		}
	}
}
