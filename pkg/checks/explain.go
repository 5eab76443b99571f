package checks

import (
	"embed"
	"fmt"
)

// pages has a page of the book for each check: what is wrong, why it matters, how to mend it, and an
// example before and after.
//
//go:embed pages/*.md
var pages embed.FS

//go:generate go run ../../hack/checkpages ../../docs/checks

// Explain returns the page of a check, as Markdown.
func Explain(id string) (string, error) {
	if _, err := Find(id); err != nil {
		return "", err
	}
	data, err := pages.ReadFile("pages/" + id + ".md")
	if err != nil {
		return "", fmt.Errorf("check %s has no page: %w", id, err)
	}
	return string(data), nil
}
