package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// A builtPage is the content of a page's HTML that the book needs.
type builtPage struct {
	name     string // its file, from the root of the book
	ids      map[string]bool
	links    []string // their targets must exist
	loaded   []string // files that the browser loads with the page
	sections []section
}

// A section is an entry of the search: the text below a heading.
type section struct {
	URL     string `json:"url"`
	Title   string `json:"title"`
	Heading string `json:"heading"` // empty for the text above the first heading of a page
	Text    string `json:"text"`
}

// read reads all pages of a book.
func read(folder string) ([]*builtPage, error) {
	var pages []*builtPage
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		file, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		root, err := html.Parse(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p := &builtPage{name: name, ids: map[string]bool{}}
		for node := range root.Descendants() {
			p.element(node)
		}
		pages = append(pages, p)
		return nil
	})
	return pages, err
}

// element records the links, loaded files and names of an element, and the sections of the text.
func (p *builtPage) element(node *html.Node) {
	if node.Type != html.ElementNode {
		return
	}
	if id := attribute(node, "id"); id != "" {
		p.ids[id] = true
	}
	switch node.DataAtom {
	case atom.A:
		p.links = append(p.links, attribute(node, "href"))
	case atom.Link:
		p.loaded = append(p.loaded, attribute(node, "href"))
	case atom.Img, atom.Script:
		if source := attribute(node, "src"); source != "" {
			p.loaded = append(p.loaded, source)
		}
	case atom.Main:
		p.sections = []section{{URL: p.name}}
		p.text(node)
		for i := range p.sections {
			s := &p.sections[i]
			s.Title, s.Heading, s.Text = p.sections[0].Title, words(s.Heading), words(s.Text)
		}
	}
}

// text adds the text of a node to the last section. A heading starts the next one.
func (p *builtPage) text(node *html.Node) {
	for child := range node.ChildNodes() {
		last := &p.sections[len(p.sections)-1]
		switch {
		case child.Type == html.TextNode:
			last.Text += child.Data
		case child.DataAtom == atom.Footer, slices.Contains(strings.Fields(attribute(child, "class")), "place"):
		case child.DataAtom == atom.H1:
			last.Title = words(content(child))
		case child.DataAtom == atom.H2, child.DataAtom == atom.H3:
			p.sections = append(p.sections, section{URL: p.name + "#" + attribute(child, "id"), Heading: content(child)})
		default:
			p.text(child)
			if child.DataAtom != atom.Code && child.DataAtom != atom.A && child.DataAtom != atom.Strong && child.DataAtom != atom.Em && child.DataAtom != atom.Span {
				p.sections[len(p.sections)-1].Text += "\n"
			}
		}
	}
}

// content returns the text of a heading, without the link to itself.
func content(node *html.Node) string {
	var b strings.Builder
	for child := range node.ChildNodes() {
		switch {
		case child.Type == html.TextNode:
			b.WriteString(child.Data)
		case attribute(child, "class") != "anchor":
			b.WriteString(content(child))
		}
	}
	return b.String()
}

// words returns a text with single spaces.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// attribute returns an attribute of an element, or "".
func attribute(node *html.Node, key string) string {
	for _, a := range node.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// check returns an error for each link to a page, heading or file that the book lacks, and for files that pages load
// from elsewhere, which are missing without a network.
func check(folder string, pages []*builtPage) error {
	ids := map[string]map[string]bool{}
	for _, p := range pages {
		ids[p.name] = p.ids
	}
	var errs []error
	for _, p := range pages {
		for i, link := range slices.Concat(p.loaded, p.links) {
			target, err := url.Parse(link)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
				continue
			}
			if i < len(p.loaded) && target.Host != "" {
				errs = append(errs, fmt.Errorf("%s loads %s, which needs a network", p.name, link))
			}
			if target.Scheme != "" || target.Host != "" {
				continue
			}
			file := p.name
			if target.Path != "" {
				file = path.Join(path.Dir(p.name), target.Path)
			}
			if info, err := os.Stat(filepath.Join(folder, filepath.FromSlash(file))); err != nil || info.IsDir() || path.IsAbs(target.Path) {
				errs = append(errs, fmt.Errorf("%s: the link %q leads to no file of the book", p.name, link))
			} else if target.Fragment != "" && !ids[file][target.Fragment] {
				errs = append(errs, fmt.Errorf("%s: the link %q leads to a heading that %s doesn't have", p.name, link, file))
			}
		}
	}
	return errors.Join(errs...)
}

// searchIndex returns the script with all sections for the search: pages that are opened from files can't read other
// files.
func searchIndex(pages []*builtPage) []byte {
	var all []section
	for _, p := range pages {
		all = append(all, p.sections...)
	}
	data, _ := json.Marshal(all) // strings only
	return slices.Concat([]byte("globalThis.bookIndex = "), data, []byte(";\n"))
}
