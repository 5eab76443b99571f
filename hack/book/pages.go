package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// home is the first page, which lists the others: the only place with their order, kinds and groups.
const home = "docs/README.md"

// A kind is one of the four kinds of text.
type kind struct {
	Name    string  `json:"name"`
	Address string  `json:"url"`
	Groups  []group `json:"groups"`
}

// A group of pages has one subject. A kind with few pages has one group without a name.
type group struct {
	Name  string  `json:"name"`
	Pages []*page `json:"pages"`
}

// A page of the book comes from one file.
type page struct {
	Title    string  `json:"title"` // in lists
	Address  string  `json:"url"`   // from the root of the book, with a leading slash
	Children []*page `json:"children,omitempty"`

	file, heading, about, place string
	text                        []byte
	parent                      *page
}

// checkRow is a line of the list of checks: ID, severity, title and source.
var checkRow = regexp.MustCompile(`(?m)^\| \[([^\]]+)\]\([^)]+\) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)

// entry is a line of the list of pages: title, file and subject.
var entry = regexp.MustCompile(`^- \[([^\]]+)\]\(([^)]+)\)(?:: (.*))?$`)

// list returns the pages of the book, in their order.
func list(repository string) ([]kind, error) {
	text, err := os.ReadFile(filepath.Join(repository, home))
	if err != nil {
		return nil, err
	}
	var kinds []kind
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "## "); ok {
			slug := strings.ReplaceAll(strings.ToLower(name), " ", "-")
			kinds = append(kinds, kind{Name: name, Address: "/index.html#" + slug, Groups: []group{{}}})
			continue
		}
		if len(kinds) == 0 {
			continue
		}
		last := &kinds[len(kinds)-1]
		if name, ok := strings.CutPrefix(line, "### "); ok {
			last.Groups = append(last.Groups, group{Name: name})
		} else if match := entry.FindStringSubmatch(line); match != nil {
			p := &page{Title: match[1], file: path.Join("docs", match[2]), about: match[3], place: last.Name}
			p.Address = address(p.file, strings.TrimSuffix(strings.TrimPrefix(last.Address, "/index.html#"), "-guides"))
			in := &last.Groups[len(last.Groups)-1]
			in.Pages = append(in.Pages, p)
		}
	}
	for _, p := range flat(kinds) {
		if p.text, err = os.ReadFile(filepath.Join(repository, p.file)); err != nil {
			return nil, fmt.Errorf("%s lists a page that can't be read: %w", home, err)
		}
		p.heading, p.text = headed(p.text)
		if p.Children, err = children(repository, p); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// address returns the address of a file's page. Files outside of docs are named for their folder or themselves.
func address(file, folder string) string {
	if name, ok := strings.CutPrefix(file, "docs/"); ok {
		return "/" + strings.TrimSuffix(name, ".md") + ".html"
	}
	name := strings.ToLower(strings.TrimSuffix(path.Base(file), ".md"))
	if name == "readme" {
		name = path.Base(path.Dir(file))
	}
	return "/" + folder + "/" + name + ".html"
}

// children returns the pages below a page with its own list: one for each command, and one for each check.
func children(repository string, p *page) ([]*page, error) {
	var pages []*page
	switch p.file {
	case "docs/reference/commands/clusterctl_release.md":
		files, err := filepath.Glob(filepath.Join(repository, path.Dir(p.file), "clusterctl_release_*.md"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			child := &page{file: path.Join(path.Dir(p.file), filepath.Base(name))}
			child.heading, child.text = headed(text)
			child.Title = strings.TrimPrefix(child.heading, "clusterctl release ")
			child.Address = address(child.file, "")
			pages = append(pages, child)
		}
	case "docs/reference/checks.md":
		for _, row := range checkRow.FindAllSubmatch(p.text, -1) {
			id, severity, about, source := string(row[1]), row[2], string(row[3]), row[4]
			child := &page{
				Title: id, heading: id, about: about,
				file: "pkg/checks/pages/" + id + ".md", Address: "/reference/checks/" + id + ".html",
			}
			text, err := os.ReadFile(filepath.Join(repository, child.file))
			if err != nil {
				return nil, err
			}
			child.text = fmt.Appendf(nil, "# %s\n\n%s. Severity: %s. Source: %s.\n\n%s", id, about, severity, source, text)
			pages = append(pages, child)
		}
	}
	for _, child := range pages {
		child.parent, child.place = p, p.place+", "+p.Title
	}
	return pages, nil
}

// flat returns all pages in reading order.
func flat(kinds []kind) []*page {
	var pages []*page
	for _, k := range kinds {
		for _, g := range k.Groups {
			for _, p := range g.Pages {
				pages = append(append(pages, p), p.Children...)
			}
		}
	}
	return pages
}

var (
	title = regexp.MustCompile(`(?m)^(#+) +(.*)$`)
	lower = regexp.MustCompile(`(?m)^#(#+ +)`)
	fence = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// headed returns the heading of a page, and the page with that heading at the first level: the pages of commands start
// at the second.
func headed(text []byte) (string, []byte) {
	first := title.FindSubmatch(text)
	if first == nil {
		return "", text
	}
	heading := strings.ReplaceAll(string(first[2]), "`", "")
	if len(first[1]) == 1 {
		return heading, text
	}
	var raised []byte
	at := 0
	for _, code := range fence.FindAllIndex(text, -1) {
		raised = append(append(raised, lower.ReplaceAll(text[at:code[0]], []byte("$1"))...), text[code[0]:code[1]]...)
		at = code[1]
	}
	return heading, append(raised, lower.ReplaceAll(text[at:], []byte("$1"))...)
}
