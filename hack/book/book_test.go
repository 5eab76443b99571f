package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repository is the root of this repository, relative to this package.
const repository = "../.."

// TestPages checks that all pages of docs and of the checks are in the book, in the folder of their kind, with unique
// addresses.
func TestPages(t *testing.T) {
	kinds, err := list(repository)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	if diff := cmp.Diff([]string{"Tutorials", "How-to guides", "Reference", "Explanation"}, names); diff != "" {
		t.Errorf("%s has other kinds:\n%s", home, diff)
	}
	files, addresses := map[string]bool{home: true}, map[string]string{}
	for _, p := range flat(kinds) {
		files[p.file] = true
		if other := addresses[p.Address]; other != "" {
			t.Errorf("%s and %s have the same address", other, p.file)
		}
		addresses[p.Address] = p.file
		kind, _, _ := strings.Cut(p.place, ",")
		folder := strings.TrimSuffix(strings.ToLower(kind), " guides")
		if !strings.HasPrefix(p.Address, "/"+folder+"/") {
			t.Errorf("%s is listed under %s and has the address %s", p.file, kind, p.Address)
		}
		if p.heading == "" || p.Title == "" || !strings.HasPrefix(string(p.text), "# ") {
			t.Errorf("%s doesn't begin with a heading", p.file)
		}
	}
	for _, folder := range []string{"docs", "pkg/checks/pages"} {
		err := fs.WalkDir(os.DirFS(filepath.Join(repository, folder)), ".", func(name string, _ fs.DirEntry, err error) error {
			if file := folder + "/" + name; filepath.Ext(name) == ".md" && !files[file] {
				t.Errorf("%s is not in the book: list it in %s", file, home)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoHTML checks that no page has text that Markdown takes for HTML and hides, such as <version> outside of code.
func TestNoHTML(t *testing.T) {
	kinds, err := list(repository)
	if err != nil {
		t.Fatal(err)
	}
	inline := regexp.MustCompile("`[^`\n]*`")
	tag := regexp.MustCompile(`(?m)(?:^|[^\\])(</?[a-zA-Z!][^>\n]*>)`)
	for _, p := range flat(kinds) {
		for _, found := range tag.FindAllSubmatch(inline.ReplaceAll(fence.ReplaceAll(p.text, nil), nil), -1) {
			t.Errorf(`%s has %s: write \%s or use code`, p.file, found[1], found[1])
		}
	}
}

func TestHeaded(t *testing.T) {
	heading, text := headed([]byte("## clusterctl `release`\n\n### Options\n\n```\n## a comment\n```\n"))
	if heading != "clusterctl release" {
		t.Errorf("the heading is %q", heading)
	}
	if diff := cmp.Diff("# clusterctl `release`\n\n## Options\n\n```\n## a comment\n```\n", string(text)); diff != "" {
		t.Error(diff)
	}
}

// newBook returns the folder and the pages of a book: an index with the given HTML, and a/b.html.
func newBook(t *testing.T, text string) (string, []*builtPage) {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"index.html":  `<link href="book.css"><main><h1>The <code>book</code></h1><p>First&nbsp;words</p>` + text + `</main>`,
		"a/b.html":    `<main><h1>B</h1></main>`,
		"book.css":    "",
		"picture.png": "",
	} {
		if err := write(filepath.Join(folder, name), nil, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	pages, err := read(folder)
	if err != nil {
		t.Fatal(err)
	}
	return folder, pages
}

func TestCheck(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"good links", `<h2 id="x">X</h2><a href="#x"></a><a href="a/b.html"></a><a href="https://example.com"></a><img src="picture.png">`, ""},
		{"no page", `<a href="a/c.html"></a>`, `index.html: the link "a/c.html" leads to no file of the book`},
		{"a folder", `<a href="a/"></a>`, `the link "a/" leads to no file`},
		{"from the root of the file system", `<a href="/a/b.html"></a>`, `the link "/a/b.html" leads to no file`},
		{"no heading", `<a href="a/b.html#x"></a>`, `the link "a/b.html#x" leads to a heading that a/b.html doesn't have`},
		{"no heading on the page", `<a href="#x"></a>`, `the link "#x" leads to a heading that index.html doesn't have`},
		{"no picture", `<img src="none.png">`, `the link "none.png" leads to no file`},
		{"a script from elsewhere", `<script src="https://example.com/x.js"></script>`, "loads https://example.com/x.js, which needs a network"},
		{"a picture by another scheme", `<img src="//example.com/x.png">`, "loads //example.com/x.png, which needs a network"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder, pages := newBook(t, test.text)
			err := check(folder, pages)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got the error %v, want %q", err, test.want)
			}
		})
	}
}

func TestSearchIndex(t *testing.T) {
	_, pages := newBook(t, `<h2 id="tls">With <em>TLS</em> <a class="anchor" href="#tls">#</a></h2><table><tr><td>a<code>b</code></td><td>c</td></tr></table><footer>Next</footer>`)
	want := `globalThis.bookIndex = [{"url":"a/b.html","title":"B","heading":"","text":""},` +
		`{"url":"index.html","title":"The book","heading":"","text":"First words"},` +
		`{"url":"index.html#tls","title":"The book","heading":"With TLS","text":"ab c"}];` + "\n"
	if diff := cmp.Diff(want, string(searchIndex(pages))); diff != "" {
		t.Error(diff)
	}
}
