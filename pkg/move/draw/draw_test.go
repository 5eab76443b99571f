package draw

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterctl-release/clusterctl-release/internal/schematest"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

var update = flag.Bool("update", false, "rewrite the golden files and the schema of the JSON")

// sample returns the picture of a small dump with all kinds of content.
func sample(t *testing.T) *Picture {
	t.Helper()
	world, err := move.Dump(t.Context(), false, "testdata/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	g := move.Discover(t.Context(), world, "team")
	return Of(g, g.Plan())
}

// TestJSONSchema checks that docs/graph.schema.json matches the graph's types and a graph.
func TestJSONSchema(t *testing.T) {
	schematest.Check(t, "graph.schema.json", &jsonGraph{}, []byte(drawn(t, sample(t), "json")), *update)
}

// drawn returns the picture in a format.
func drawn(t *testing.T, p *Picture, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(format, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestGolden compares each format with a golden file, and two pictures of the same objects with each other.
func TestGolden(t *testing.T) {
	for _, collapse := range []Collapse{Auto, Siblings, Kinds} {
		for _, format := range Formats.Names() {
			if collapse != Auto && format == "json" {
				continue // JSON has all objects
			}
			name := "sample." + format
			if collapse != Auto {
				name = "sample-" + string(collapse) + "." + format
			}
			if collapse != Auto && format == "html" {
				continue // the page has all ways to collapse
			}
			t.Run(name, func(t *testing.T) {
				p := sample(t)
				p.Collapse = collapse
				got := drawn(t, p, format)
				if again := drawn(t, p, format); again != got {
					t.Error("a second picture of the same objects differs")
				}
				file := filepath.Join("testdata", name)
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestOrder checks that the order of a dump's objects does not change the picture.
func TestOrder(t *testing.T) {
	world, err := move.Dump(t.Context(), false, "testdata/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(world.Objects)
	g := move.Discover(t.Context(), world, "team")
	reversed := Of(g, g.Plan())
	for _, format := range Formats.Names() {
		if diff := cmp.Diff(drawn(t, sample(t), format), drawn(t, reversed, format)); diff != "" {
			t.Errorf("%s (-first +reversed):\n%s", format, diff)
		}
	}
}

func TestUnknown(t *testing.T) {
	if err := sample(t).Write("png", io.Discard); err == nil || !strings.Contains(err.Error(), "use text, json, dot, mermaid, svg, html") {
		t.Errorf("got the error %v, want one with the accepted values", err)
	}
	if err := ParseCollapse("all"); err == nil || !strings.Contains(err.Error(), "use auto, none, siblings or kinds") {
		t.Errorf("got the error %v, want one with the accepted values", err)
	}
	if err := sample(t).Write("svg", failing{}); !errors.Is(err, errFull) {
		t.Errorf("got the error %v, want the writer's", err)
	}
}

var errFull = errors.New("full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestColor(t *testing.T) {
	p := sample(t)
	if strings.Contains(drawn(t, p, "text"), "\x1b") {
		t.Error("the text without colours has escape sequences")
	}
	p.Color = true
	for _, line := range strings.Split(drawn(t, p, "text"), "\n") {
		if left := strings.Contains(line, "× LEFT BEHIND"); left != strings.Contains(line, "\x1b[31;1m") && !strings.HasPrefix(line, "\x1b[31;1mThe move") {
			t.Errorf("left behind is %v, but the line is %q", left, line)
		}
	}
}

// namespace returns about n members of a namespace with Clusters, a few of them left behind.
func namespace(n int) []move.Member {
	var members []move.Member
	add := func(kind, name string, fate move.Fate, owners ...int) int {
		m := move.Member{Object: manifest.Object{APIVersion: "example.com/v1", Kind: kind, Namespace: "team", Name: name}, Fate: fate, Why: "because"}
		for _, owner := range owners {
			m.Owners = append(m.Owners, move.Link{At: owner, Soft: kind == "Cluster" || kind == "Secret"})
		}
		members = append(members, m)
		return len(members) - 1
	}
	class := add("ClusterClass", "class", move.FateCopied)
	for i := 0; len(members) < n; i++ {
		name := fmt.Sprintf("c%d", i)
		var cluster int
		if i%2 == 0 {
			cluster = add("Cluster", name, move.FateMoved, class)
		} else {
			cluster = add("Cluster", name, move.FateMoved)
		}
		add("DemoCluster", name, move.FateMoved, cluster)
		for _, suffix := range []string{"ca", "etcd", "proxy", "sa"} {
			add("Secret", name+"-"+suffix, move.FateMoved, cluster)
		}
		for pool := range 3 {
			set := add("MachineSet", fmt.Sprintf("%s-%d", name, pool), move.FateMoved, cluster)
			for machine := range 3 {
				machineName := fmt.Sprintf("%s-%d-%d", name, pool, machine)
				m := add("Machine", machineName, move.FateMoved, set)
				add("DemoMachine", machineName, move.FateMoved, m, cluster)
				config := add("KubeadmConfig", machineName, move.FateMoved, m)
				add("Secret", machineName, move.FateMoved, config)
			}
		}
		if i%3 == 0 {
			add("DemoDisk", name, move.FateLeft)
			ghost := add("DemoArray", name, move.FateAbsent)
			add("DemoVolume", name, move.FateLeft, ghost)
			ring := add("DemoRing", name+"-a", move.FateLeft, len(members)+1)
			add("DemoRing", name+"-b", move.FateLeft, ring)
		}
	}
	return members
}

// tangle returns members with random owners, some of them in cycles.
func tangle(seed uint64, n int) []move.Member {
	random := rand.New(rand.NewPCG(seed, 1))
	fates := []move.Fate{move.FateMoved, move.FateCopied, move.FateLeft, move.FateApart, move.FateAbsent}
	members := make([]move.Member, n)
	for i := range members {
		members[i] = move.Member{
			Object: manifest.Object{APIVersion: "v1", Kind: fmt.Sprintf("Kind%d", random.IntN(8)), Namespace: "team", Name: fmt.Sprintf("n%d", i)},
			Fate:   fates[random.IntN(len(fates))],
		}
		for range random.IntN(4) {
			link := move.Link{At: random.IntN(n), Soft: random.IntN(4) == 0}
			if !slices.ContainsFunc(members[i].Owners, func(l move.Link) bool { return l.At == link.At }) {
				members[i].Owners = append(members[i].Owners, link)
			}
		}
	}
	return members
}

func pictureOf(members []move.Member) *Picture {
	return newPicture(&move.Plan{Source: "a test", Namespace: "team"}, members)
}

// pictures returns the pictures for tests of all layouts.
func pictures(t *testing.T) map[string]*Picture {
	all := map[string]*Picture{
		"nothing": pictureOf(nil), "sample": sample(t), "one": pictureOf(namespace(1)), "500": pictureOf(namespace(500)), "1500": pictureOf(namespace(1500)),
	}
	for seed := range uint64(20) {
		all[fmt.Sprintf("tangle %d", seed)] = pictureOf(tangle(seed, 2+int(seed)*5))
	}
	return all
}

// TestEveryObjectIsDrawn checks that each object is in one box, and that the counts add up to all objects.
func TestEveryObjectIsDrawn(t *testing.T) {
	count := regexp.MustCompile(` ×(\d+)$`)
	for name, p := range pictures(t) {
		for _, collapse := range Collapses() {
			p.Collapse = collapse
			in := make([]int, len(p.Members))
			for _, b := range p.drawing().boxes {
				for _, i := range b.members {
					in[i]++
				}
			}
			for i, n := range in {
				if n != 1 {
					t.Errorf("%s, %s: %s is in %d boxes", name, collapse, p.Members[i].Object, n)
				}
			}
			objects, left := 0, 0
			for _, b := range boxesOf(t, drawn(t, p, "svg")) {
				n := 1
				if match := count.FindStringSubmatch(b.heading); match != nil {
					_, _ = fmt.Sscan(match[1], &n)
				}
				objects += n
				if strings.Contains(b.class, " left") {
					left += n
				}
			}
			if objects != len(p.Members) || left != len(p.leftBehind()) {
				t.Errorf("%s, %s: the SVG has %d objects, %d left behind; want %d and %d", name, collapse, objects, left, len(p.Members), len(p.leftBehind()))
			}
			lines := 0
			for _, line := range strings.Split(drawn(t, p, "text"), "\n") {
				for _, l := range looks {
					if strings.Contains(line, "  "+l.marker+" "+l.label) {
						lines++
						break
					}
				}
			}
			want := len(p.drawing().boxes)
			if collapse == Auto {
				want = len(p.Members)
			}
			if lines != want {
				t.Errorf("%s, %s: the text has %d lines of objects, want %d", name, collapse, lines, want)
			}
		}
		var got struct{ Objects []any }
		if err := json.Unmarshal([]byte(drawn(t, p, "json")), &got); err != nil || len(got.Objects) != len(p.Members) {
			t.Errorf("%s: the JSON has %d objects, want %d: %v", name, len(got.Objects), len(p.Members), err)
		}
		if rows := strings.Count(drawn(t, p, "html"), "<li class=\"") - len(looks); rows != len(p.Members) {
			t.Errorf("%s: the page lists %d objects, want %d", name, rows, len(p.Members))
		}
	}
}

// svgBox is a box of an SVG.
type svgBox struct{ class, heading string }

// boxesOf reads the boxes of an SVG.
func boxesOf(t *testing.T, text string) []svgBox {
	t.Helper()
	var found []svgBox
	var walk func(e element, class string)
	walk = func(e element, class string) {
		if e.XMLName.Local == "g" && e.attribute("data-box") != "" {
			class = e.attribute("class")
			found = append(found, svgBox{class: class})
		}
		if e.XMLName.Local == "text" && e.attribute("class") == "kind" && class != "" {
			found[len(found)-1].heading = e.Text
		}
		for _, child := range e.Children {
			walk(child, class)
		}
	}
	walk(parsed(t, text), "")
	return found
}

// element is an element of XML.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e element) attribute(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// parsed returns the root element of an SVG.
func parsed(t *testing.T, text string) element {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	var root element
	if err := decoder.Decode(&root); err != nil {
		t.Fatalf("the SVG isn't XML: %v\n%s", err, text)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) && err != nil {
		t.Fatalf("more data after the SVG: %v", err)
	}
	return root
}

// TestSelfContained checks that a picture refers to no other files and runs no script except the page's own.
func TestSelfContained(t *testing.T) {
	outside := regexp.MustCompile(`(?i)\b(src|href|srcset|data|action|poster)\s*=|url\(|@import|<(iframe|object|embed|link|img|image|use|foreignObject)\b|\bon[a-z]+\s*=\s*"`)
	for name, p := range pictures(t) {
		for _, format := range []string{"svg", "html"} {
			text := drawn(t, p, format)
			if found := outside.FindString(text); found != "" {
				t.Errorf("%s, %s: the picture has %q", name, format, found)
			}
			rest := strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")
			if i := strings.Index(rest, "://"); i >= 0 {
				t.Errorf("%s, %s: the picture has an address: %q", name, format, rest[max(0, i-20):i+20])
			}
		}
		text := drawn(t, p, "html")
		_, script, _ := strings.Cut(text, "<script>")
		script, rest, _ := strings.Cut(script, "</script>")
		sum := sha256.Sum256([]byte(script))
		policy := "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; script-src &#39;sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "&#39;"
		if !strings.Contains(strings.ReplaceAll(text, "&#43;", "+"), policy) || strings.Contains(rest, "<script") {
			t.Errorf("%s: the page's policy does not permit its one script", name)
		}
	}
}
