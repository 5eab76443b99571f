package checks

import (
	"embed"
	"fmt"
)

// pages has a page for each check: what is wrong, why it matters, how to fix it, and an
// example before and after.
//
//go:embed pages/*.md
var pages embed.FS

//go:generate go run ../../hack/checkpages ../../docs/reference/checks.md ../../pkg/checks/pages

// Explain returns the page of a check, as Markdown. It begins with the check's title, severity and source.
func Explain(id string) (string, error) {
	check, err := Find(id)
	if err != nil {
		return "", err
	}
	data, err := pages.ReadFile("pages/" + id + ".md")
	if err != nil {
		return "", fmt.Errorf("check %s has no page: %w", id, err)
	}
	return fmt.Sprintf("# %s\n\n%s. Severity: %s. Source: %s.\n\n%s", check.ID, check.Title, check.Severity, check.Source, data), nil
}
