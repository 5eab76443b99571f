package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is the root of this repository from here.
const repository = "../.."

// commandLines returns the arguments of the tool's command lines in the code of a page: those that begin a line of a
// block, and those in a sentence.
func commandLines(page string) [][]string {
	var found [][]string
	page = strings.ReplaceAll(page, "\\\n", " ")
	for _, code := range append(fence.FindAllString(page, -1), inline.FindAllString(fence.ReplaceAllString(page, ""), -1)...) {
		for line := range strings.Lines(strings.Trim(code, "`")) {
			line, _, _ = strings.Cut(line, " #")
			args, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "clusterctl release ")
			if ok {
				found = append(found, strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(args)))
			}
		}
	}
	return found
}

// TestCommandsOfPages: the tool's command lines in pages have commands and flags that exist, also those that TestGuides
// doesn't run. The pages of the commands are generated from them.
func TestCommandsOfPages(t *testing.T) {
	checked := 0
	for path, text := range pages(t) {
		if filepath.Base(filepath.Dir(path)) == "commands" {
			continue
		}
		for _, args := range commandLines(text) {
			checked++
			command, rest, err := newRootCommand().Find(args)
			if err == nil {
				err = command.ParseFlags(rest)
			}
			if err == nil && command.HasSubCommands() && command.Flags().NArg() > 0 {
				err = fmt.Errorf("%s has no command %s", command.CommandPath(), command.Flags().Arg(0))
			}
			if err != nil {
				t.Errorf("%s: clusterctl release %s: %v", path, strings.Join(args, " "), err)
			}
		}
	}
	if checked < 50 {
		t.Errorf("found %d command lines only", checked)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline  = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// slugs returns the anchors that GitHub gives to the headings of a page.
func slugs(page string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		text := link.ReplaceAllString(strings.ToLower(match[1]), "")
		found[strings.ReplaceAll(notSlug.ReplaceAllString(text, ""), " ", "-")] = true
	}
	return found
}

// pages returns the texts of all pages of this repository by their paths.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "out" || entry.Name() == ".git"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			texts[filepath.Clean(path)] = string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestLinks: links between the pages of this repository lead to files and headings that exist.
func TestLinks(t *testing.T) {
	pages := pages(t)
	for path, text := range pages {
		pages[path] = fence.ReplaceAllString(text, "")
	}
	links := 0
	for path, text := range pages {
		for _, match := range link.FindAllStringSubmatch(inline.ReplaceAllString(text, ""), -1) {
			target, err := url.Parse(match[1])
			if err != nil || target.Scheme != "" {
				continue
			}
			links++
			file := path
			if target.Path != "" {
				file = filepath.Join(filepath.Dir(path), target.Path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", path, match[1], err)
			} else if page, ok := pages[file]; ok && target.Fragment != "" && !slugs(page)[target.Fragment] {
				t.Errorf("%s: the link %s leads to a heading that %s doesn't have", path, match[1], file)
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links only", links)
	}
}

// longParagraphs are pages that still have paragraphs of more than four lines, and how many. Lower a number where a page
// has fewer.
var longParagraphs = map[string]int{
	"docs/how-to/node-image.md": 1,
}

var (
	// structure is a line of a table, a heading or HTML.
	structure = regexp.MustCompile(`^\s*(\||#|<|$)`)
	item      = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
)

// TestShortParagraphs: no paragraph and no item of a list is longer than four lines of 120 columns, in README.md, docs
// and the pages of the checks.
func TestShortParagraphs(t *testing.T) {
	const columns, most = 120, 4
	checked := 0
	for path, text := range pages(t) {
		page := strings.TrimPrefix(filepath.ToSlash(path), repository+"/")
		if page != "README.md" && !strings.HasPrefix(page, "docs/") && !strings.HasPrefix(page, "pkg/checks/pages/") {
			continue
		}
		checked++
		var long []string
		for _, paragraph := range paragraphs(fence.ReplaceAllString(text, "\n")) {
			shown := link.ReplaceAllString(paragraph, "]")
			if lines := strings.Count(fold(shown, columns), "\n") + 1; lines > most {
				long = append(long, fmt.Sprintf("%d lines: %.60s...", lines, shown))
			}
		}
		if len(long) > longParagraphs[page] {
			t.Errorf("%s has %d paragraphs of more than %d lines, and may have %d:\n%s", page, len(long), most, longParagraphs[page], strings.Join(long, "\n"))
		}
	}
	if checked < 150 {
		t.Errorf("checked %d pages only", checked)
	}
}

// paragraphs returns the paragraphs and the items of lists of a page, each as one line.
func paragraphs(page string) []string {
	found := []string{""}
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		last := &found[len(found)-1]
		switch {
		case structure.MatchString(line):
			found = append(found, "")
		case *last == "" && strings.HasPrefix(line, "    "): // code
		case item.MatchString(line):
			found = append(found, strings.TrimSpace(line))
		default:
			*last = strings.TrimSpace(*last + " " + strings.TrimSpace(line))
		}
	}
	return found
}

// TestMap: the folders in the map of CONTRIBUTING.md exist, and it has every package of pkg.
func TestMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "## Where things are\n\n```\n")
	tree, _, _ := strings.Cut(after, "```")
	listed := map[string]bool{}
	for line := range strings.Lines(tree) {
		folders, _, _ := strings.Cut(line, "  ")
		parent := ""
		for i, folder := range strings.Split(folders, ", ") {
			if i == 0 {
				parent = filepath.Dir(strings.TrimSuffix(folder, "/"))
			} else {
				folder = filepath.Join(parent, folder)
			}
			listed[filepath.Clean(folder)] = true
			if info, err := os.Stat(filepath.Join(repository, folder)); err != nil || !info.IsDir() {
				t.Errorf("there is no folder %s: %v", folder, err)
			}
		}
	}
	entries, err := os.ReadDir(filepath.Join(repository, "pkg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !listed["pkg/"+entry.Name()] {
			t.Errorf("the map lacks pkg/%s", entry.Name())
		}
	}
}
