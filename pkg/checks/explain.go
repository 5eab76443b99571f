package checks

import (
	"embed"
	"fmt"
)

// pages contains a page for each check: what is wrong, why it matters, how to fix it, and an example before and after.
//
//go:embed pages/*.md
var pages embed.FS

//go:generate go run ../../hack/checkpages ../../docs/reference/checks.md ../../pkg/checks/pages

// Page returns the page of the check as Markdown. It begins with the check's title, severity and source.
func (c Check) Page() (string, error) {
	data, err := pages.ReadFile("pages/" + c.ID + ".md")
	if err != nil {
		return "", fmt.Errorf("check %s has no page: %w", c.ID, err)
	}
	return fmt.Sprintf("# %s\n\n%s. Severity: %s. Source: %s.\n\n%s", c.ID, c.Title, c.Severity, c.Source, data), nil
}
