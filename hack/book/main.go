// Command book builds the book from the pages that docs/README.md lists: go run ./hack/book HUGO FOLDER, at the root of
// the repository, where HUGO is the program that converts Markdown to HTML. The pages in FOLDER need neither a server
// nor a network.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sources is the address of files that are not in the book.
const sources = "https://github.com/clusterctl-release/clusterctl-release/blob/main"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: book HUGO FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "book:", err)
		os.Exit(1)
	}
}

// run builds the book in a folder. It fails for a book with a broken link.
func run(hugo, folder string) error {
	kinds, err := list(".")
	if err != nil {
		return err
	}
	project, err := os.MkdirTemp("", "book-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(project) }()
	if err := prepare(project, kinds); err != nil {
		return err
	}
	built := filepath.Join(project, "public")
	command := exec.Command(hugo, "--source", project, "--destination", built, "--cacheDir", filepath.Join(project, "cache"), "--panicOnWarning")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", hugo, err, out)
	}
	pages, err := read(built)
	if err != nil {
		return err
	}
	if err := check(built, pages); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(built, "search-index.js"), searchIndex(pages), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.CopyFS(folder, os.DirFS(built)); err != nil {
		return err
	}
	fmt.Printf("made %d pages: %s\n", len(pages), filepath.Join(folder, "index.html"))
	return nil
}

// prepare writes Hugo's project: the theme, the pages with their data for the theme, other files of docs, and
// data/book.json.
func prepare(project string, kinds []kind) error {
	if err := os.CopyFS(project, os.DirFS("hack/book/site")); err != nil {
		return err
	}
	addresses := map[string]string{home: "/index.html"}
	text, err := os.ReadFile(home)
	if err != nil {
		return err
	}
	errs := []error{write(filepath.Join(project, "content", "_index.md"), map[string]any{"title": "Documentation", "params": map[string]any{"source": home, "address": "/index.html"}}, text)}
	all := flat(kinds)
	for i, p := range all {
		addresses[p.file] = p.Address
		params := map[string]any{"source": p.file, "address": p.Address, "about": p.about, "place": p.place}
		if p.parent != nil {
			params["parent"] = p.parent.Address
		}
		if i > 0 {
			params["previous"] = all[i-1]
		}
		if i+1 < len(all) {
			params["next"] = all[i+1]
		}
		name := filepath.Join(project, "content", strings.TrimSuffix(p.Address, ".html")+".md")
		errs = append(errs, write(name, map[string]any{"title": p.heading, "url": p.Address, "params": params}, p.text))
	}
	errs = append(errs, fs.WalkDir(os.DirFS("docs"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) == ".md" {
			return err
		}
		addresses["docs/"+name] = "/" + name
		content, err := os.ReadFile(filepath.Join("docs", name))
		return errors.Join(err, write(filepath.Join(project, "static", name), nil, content))
	}))
	data, err := json.Marshal(map[string]any{"kinds": kinds, "addresses": addresses, "sources": sources})
	return errors.Join(errors.Join(errs...), err, write(filepath.Join(project, "data", "book.json"), nil, data))
}

// write writes a file of Hugo's project, which begins with the front matter if there is any.
func write(name string, front map[string]any, text []byte) error {
	var content bytes.Buffer
	if front != nil {
		matter, err := json.MarshalIndent(front, "", "  ")
		if err != nil {
			return err
		}
		content.Write(matter)
		content.WriteString("\n\n")
	}
	content.Write(text)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content.Bytes(), 0o644)
}
