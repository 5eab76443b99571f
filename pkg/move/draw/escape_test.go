package draw

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

var (
	dotOutline     = regexp.MustCompile(`^(digraph owners \{|  (subgraph cluster_legend \{|label="([^"\\]|\\[n"\\])*";|labelloc=t;|bgcolor=white;|(node|edge) \[[^\]]*\];|(n\d+|  legend_\w+) \[label="([^"\\]|\\[n"\\])*"(, \w+=("[#\w,]*"|[\w.]+))*\];|n\d+ -> n\d+( \[[^\]]*\])?;|  label="Legend";|  legend_[\w >-]+ \[style=invis\];|\})|\})$`)
	mermaidOutline = regexp.MustCompile(`^(%% [^{}]*|flowchart TD|  (n\d+|warning\d+|  legend_\w+)\[{1,2}"([\w .:,+/<>-]|#\d+;)*"\]{1,2}(:::\w+)?|  n\d+ (-->|==>|-\.->) n\d+|  subgraph legend\[Legend\]|    direction TB|    [\w ~]+|  end|  linkStyle [\d,]+ stroke:#\w+|  classDef [\w:#.,\- ]+)$`)
	entity         = regexp.MustCompile(`&(\w+|#\d+);`)
)

// FuzzEscaping checks that all names, kinds and reasons stay text: the picture has the same outline as one with
// harmless texts.
func FuzzEscaping(f *testing.F) {
	for _, text := range []string{
		"a", "", `</title><script>alert(1)</script>`, `"]; x -> y; n [label="`, "a\nb\r\nc\u2028d", "\x1b[31mred", "\u202egnp.exe", "a&amp;b &#x41; #quot; #35;",
		"`*_markdown_*`", "%%{init: {}}%%", `\N \G \"`, "'-alert(1)-'", "]]>", "--><b>", "\x00\x7f\xff\xfe", "日本語の名前はここでとても長いのですがどうなりますか", strings.Repeat("x", 300), "end", "{{.}}",
	} {
		f.Add(text, text, text)
	}
	f.Fuzz(func(t *testing.T, kind, name, why string) {
		for _, collapse := range []Collapse{None, Kinds} {
			p, harmless := hostile(kind, name, why), hostile("Kind", "name", "why")
			p.Collapse, harmless.Collapse = collapse, collapse
			checkXML(t, parsed(t, drawn(t, p, "svg")))
			if got, want := tags(drawn(t, p, "html")), tags(drawn(t, harmless, "html")); !slices.Equal(got, want) {
				t.Errorf("the tags of the page are %q, want %q", got, want)
			}
			for _, line := range strings.Split(strings.TrimSuffix(drawn(t, p, "dot"), "\n"), "\n") {
				if !dotOutline.MatchString(line) || strings.Contains(entity.ReplaceAllString(line, ""), "&") {
					t.Errorf("this isn't a line of DOT: %q", line)
				}
			}
			for _, line := range strings.Split(strings.TrimSuffix(drawn(t, p, "mermaid"), "\n"), "\n") {
				if !mermaidOutline.MatchString(line) {
					t.Errorf("this isn't a line of mermaid: %q", line)
				}
			}
			for _, format := range Formats.Names() {
				if format == "json" {
					continue // JSON has the unchanged names with JSON's escapes
				}
				text := drawn(t, p, format)
				if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) || r == unicode.ReplacementChar }); i >= 0 {
					t.Errorf("%s has an unprintable character: %q", format, text[i:min(i+10, len(text))])
				}
			}
			if got, want := strings.Count(drawn(t, p, "text"), "\n"), strings.Count(drawn(t, harmless, "text"), "\n"); got != want {
				t.Errorf("the text has %d lines, want %d", got, want)
			}
		}
	})
}

// hostile returns a picture with the given texts everywhere.
func hostile(kind, name, why string) *Picture {
	o := manifest.Object{APIVersion: name + "/v1", Kind: kind, Namespace: name, Name: name}
	other := o
	other.Name += "2"
	members := []move.Member{
		{Object: o, Fate: move.FateMoved, Why: why, Stops: []string{why}},
		{Object: other, Fate: move.FateLeft, Why: why, Owners: []move.Link{{At: 0}}},
		{Object: other, Fate: move.FateLeft, Why: why, Owners: []move.Link{{At: 1, Soft: true}, {At: 3}}},
		{Object: other, Fate: move.FateLeft, Why: why, Owners: []move.Link{{At: 2}}},
	}
	return newPicture(&move.Plan{
		Source: name, Namespace: name, Stops: []move.Stop{{Object: o, Why: why}},
		Problems: []move.Problem{{Where: name, Message: why}}, Assumptions: []string{why},
	}, members)
}

// checkXML checks that an SVG has only elements and attributes that this package writes.
func checkXML(t *testing.T, e element) {
	t.Helper()
	if !slices.Contains([]string{"svg", "title", "desc", "style", "rect", "text", "g", "path"}, e.XMLName.Local) {
		t.Errorf("the SVG has an element %s", e.XMLName.Local)
	}
	for _, a := range e.Attrs {
		if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || strings.HasSuffix(a.Name.Local, "href") {
			t.Errorf("the SVG has an attribute %s", a.Name.Local)
		}
	}
	for _, child := range e.Children {
		checkXML(t, child)
	}
}

// tags returns the names of a page's tags in their order, without the script.
func tags(text string) []string {
	head, rest, _ := strings.Cut(text, "<script>")
	_, rest, _ = strings.Cut(rest, "</script>") // the script doesn't depend on the objects
	return regexp.MustCompile(`<[^\s>]*`).FindAllString(head+rest, -1)
}

func TestShorten(t *testing.T) {
	for _, tc := range []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"},
		{"abcdefghij", 5, "ab…ij"},
		{"abcdefghij", 6, "abc…ij"},
		{"", 3, ""},
		{"日本語日本語", 7, "日本…語"},
		{"ab", 1, "…"},
	} {
		if got := shorten(tc.text, tc.columns); got != tc.want || cells(got) > tc.columns {
			t.Errorf("%q in %d columns is %q, want %q", tc.text, tc.columns, got, tc.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"", []string{""}},
		{"one two three", []string{"one two", "three"}},
		{"one two three four five six seven eight nine", []string{"one two", "three four", "five …nine"}},
		{"abcdefghijklmnopq", []string{"abcde…nopq"}},
	} {
		if got := wrap(tc.text, 10); !slices.Equal(got, tc.want) {
			t.Errorf("%q is wrapped to %q, want %q", tc.text, got, tc.want)
		}
	}
}
