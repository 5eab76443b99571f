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

// repository is the root of this repository, relative to this package.
const repository = "../.."

// commandLines returns the arguments of the tool's command lines in the code of a page: in blocks, where they begin a
// line, and in sentences.
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

// TestCommandsOfPages checks that the commands and flags of all command lines in pages exist. TestGuides runs only
// some of them. The reference pages of the commands are generated.
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
		t.Errorf("found only %d command lines", checked)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inline  = regexp.MustCompile("`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// slugs returns GitHub's anchors of the headings of a page.
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

// TestLinks checks that the links between pages of this repository point to existing files and headings.
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
				t.Errorf("%s: the target of the link %s is missing: %v", path, match[1], err)
			} else if page, ok := pages[file]; ok && target.Fragment != "" && !slugs(page)[target.Fragment] {
				t.Errorf("%s: the link %s points to a heading that %s doesn't have", path, match[1], file)
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links", links)
	}
}

// longParagraphs counts the paragraphs of more than four lines that pages still have. Lower a number when a page has
// fewer.
var longParagraphs = map[string]int{
	"docs/how-to/node-image.md": 1,
}

var (
	// structure is a line of a table, a heading or HTML.
	structure = regexp.MustCompile(`^\s*(\||#|<|$)`)
	item      = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
)

// TestShortParagraphs checks that paragraphs and list items have at most four lines of 120 columns in README.md, docs
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
			t.Errorf("%s has %d paragraphs of more than %d lines, want at most %d:\n%s", page, len(long), most, longParagraphs[page], strings.Join(long, "\n"))
		}
	}
	if checked < 150 {
		t.Errorf("checked only %d pages", checked)
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

// TestMap checks that the folders in the map of CONTRIBUTING.md exist, and that it has every package of pkg.
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
				t.Errorf("the folder %s is missing: %v", folder, err)
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
