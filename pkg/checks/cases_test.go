package checks_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/build"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/ownership"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// caseFile is testdata/checks/<id>.yaml: how this repository's own release is edited so that the
// check has to find something (bad) or has to stay silent (good).
type caseFile struct {
	Bad  []checkCase `json:"bad"`
	Good []checkCase `json:"good"`
}

// checkCase is one edited release.
type checkCase struct {
	Name string `json:"name"`
	// Provider and Version stand for other than the own release's: "bootstrap-demo".
	Provider string `json:"provider"`
	Version  string `json:"version"`
	// Rename is another name for the provider.
	Rename string `json:"rename"`
	// Empty starts without files.
	Empty bool   `json:"empty"`
	Edits []edit `json:"edits"`
	// Previous are the edits that make the previous release of the own one.
	Previous []edit `json:"previous"`
	// With are releases of other providers that the release is checked with.
	With []checkCase `json:"with"`
	// Tree has files of a source tree by path, the release file among them, that the release is made of.
	Tree map[string]string `json:"tree"`
	// Dump is what is checked instead of a release: the objects of the namespace default of a dump.
	Dump string `json:"dump"`
	// Want has a text for each finding of the check: "<severity> <file> | <object> | <path> | <part of the message>".
	// Parts at the end may be left out.
	Want []string `json:"want"`
}

// edit changes one file, or one object of it.
type edit struct {
	File string `json:"file"`
	// Write replaces the whole file, and makes it; Drop takes it out of the release.
	Write *string `json:"write"`
	Drop  bool    `json:"drop"`
	// Text replaces a text that occurs once.
	Text *struct {
		Old string `json:"old"`
		New string `json:"new"`
	} `json:"text"`
	// Object is "Kind name", and picks the object that the rest is about.
	Object string `json:"object"`
	// Remove takes the object out.
	Remove bool `json:"remove"`
	// Set gives a field a value, Delete takes it out; Path has its steps, numbers for items of lists.
	Path   []any `json:"path"`
	Set    any   `json:"set"`
	Delete bool  `json:"delete"`
	// Add puts YAML documents at the file's end, Repeat of them one after another.
	Add    string `json:"add"`
	Repeat int    `json:"repeat"`
}

var ownRelease = sync.OnceValues(func() (*release.Release, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return nil, err
	}
	config, err := release.Load(filepath.Join(root, release.ConfigFile))
	if err != nil {
		return nil, err
	}
	source, err := tree.Open(root)
	if err != nil {
		return nil, err
	}
	result, err := build.Build(contextForBuild, source, build.Options{Config: config, Version: "v0.1.0"})
	if err != nil {
		return nil, err
	}
	return result.Releases[0], nil
})

// TestCases runs every case of every check.
func TestCases(t *testing.T) {
	for _, check := range catalog.All() {
		path := filepath.Join(pinned.Root(t), "testdata", "checks", check.ID+".yaml")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("check %s has no cases: %v", check.ID, err)
			continue
		}
		var cases caseFile
		if err := yaml.UnmarshalStrict(data, &cases); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if len(cases.Bad) == 0 {
			t.Errorf("check %s has no bad case", check.ID)
		}
		if len(cases.Good) == 0 {
			t.Errorf("check %s has no good case", check.ID)
		}
		for _, c := range cases.Bad {
			t.Run(check.ID+"/bad/"+c.Name, func(t *testing.T) {
				if len(c.Want) == 0 {
					t.Fatal("a bad case wants findings")
				}
				compareFindings(t, check.ID, c)
			})
		}
		for _, c := range cases.Good {
			t.Run(check.ID+"/good/"+c.Name, func(t *testing.T) { compareFindings(t, check.ID, c) })
		}
	}
}

// compareFindings checks an edited release and compares what the check found with what the case wants.
func compareFindings(t *testing.T, id string, c checkCase) {
	t.Helper()
	check, err := catalog.All().Find(id)
	if err != nil {
		t.Fatal(err)
	}
	wanted := slices.Clone(c.Want)
	c.run(t, check, func(f checks.Finding) {
		if f.Severity == "" {
			f.Severity = check.Severity
		}
		if f.Message == "" || f.Fix == "" {
			t.Errorf("a finding without message or fix: %+v", f)
		}
		got := fmt.Sprintf("%s %s | %s | %s | %s", f.Severity, f.File, f.Object, f.Path, f.Message)
		i := slices.IndexFunc(wanted, func(want string) bool { return isFinding(got, want) })
		if i < 0 {
			t.Errorf("not wanted: %s", got)
			return
		}
		wanted = slices.Delete(wanted, i, i+1)
	})
	for _, want := range wanted {
		t.Errorf("not found: %s", want)
	}
}

// run runs a check on the edited release, or on the dump.
func (c checkCase) run(t *testing.T, check checks.Check, report checks.Report) {
	t.Helper()
	var result *checks.Result
	var err error
	switch {
	case c.Dump != "":
		result = c.world(t)
	case check.Run != nil:
		if err := check.Run(t.Context(), c.subject(t), report); err != nil {
			t.Fatal(err)
		}
		return
	default:
		if result, err = catalog.All().Run(t.Context(), c.subject(t)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range result.Findings {
		if f.ID == check.ID {
			if f.File != "" {
				f.File = filepath.Base(f.File)
			}
			report(f)
		}
	}
}

// world checks the dump.
func (c checkCase) world(t *testing.T) *checks.Result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "dump.yaml")
	if err := os.WriteFile(file, []byte(c.Dump), 0o600); err != nil {
		t.Fatal(err)
	}
	world, err := move.Dump(t.Context(), true, file)
	if err != nil {
		t.Fatal(err)
	}
	if len(world.Problems) > 0 {
		t.Fatalf("the dump has problems: %v", world.Problems)
	}
	result, err := ownership.RunWorld(t.Context(), world, "default")
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// subject returns the edited release, with the one before where the case has one.
func (c checkCase) subject(t *testing.T) *checks.Subject {
	t.Helper()
	subject := &checks.Subject{Release: c.apply(t)}
	if len(c.Previous) > 0 {
		subject.Previous = checkCase{Edits: c.Previous}.apply(t)
	}
	for _, other := range c.With {
		subject.With = append(subject.With, other.apply(t))
	}
	if len(c.Tree) > 0 {
		c.setSource(t, subject)
	}
	return subject
}

// setSource writes the case's tree and gives it to a subject, with its provider's entry in the release file.
func (c checkCase) setSource(t *testing.T, subject *checks.Subject) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range c.Tree {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := release.Load(filepath.Join(dir, release.ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	source, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	subject.Source = &checks.Source{Tree: source, Config: config}
	for i, p := range config.Providers {
		if p.Provider() == subject.Release.Provider {
			subject.Config = &config.Providers[i]
		}
	}
}

// isFinding reports whether a finding is the wanted one: all parts are equal, and the last of four is contained.
func isFinding(got, want string) bool {
	parts, wanted := strings.SplitN(got, " | ", 4), strings.SplitN(want, " | ", 4)
	for i, part := range wanted {
		if i == 3 && strings.Contains(parts[i], part) {
			continue
		}
		if strings.TrimSpace(parts[i]) != strings.TrimSpace(part) {
			return false
		}
	}
	return true
}

// apply returns the own release with the case's edits, read from files as the command reads it.
func (c checkCase) apply(t *testing.T) *release.Release {
	t.Helper()
	own, err := ownRelease()
	if err != nil {
		t.Fatal(err)
	}
	edited := &release.Release{Provider: own.Provider, Version: own.Version}
	if c.Version != "" {
		edited.Version = c.Version
	}
	if c.Provider != "" {
		if edited.Provider, err = release.ParseLabel(c.Provider); err != nil {
			t.Fatal(err)
		}
	}
	if c.Rename != "" {
		edited.Provider.Name = c.Rename
	}
	if !c.Empty {
		edited.Files = slices.Clone(own.Files)
	}
	for _, e := range c.Edits {
		e.apply(t, edited)
	}
	root := t.TempDir()
	dir := filepath.Join(root, edited.Provider.Label(), edited.Version)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, f := range edited.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	releases, err := publish.Read(t.Context(), root, publish.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return releases[0]
}

// apply makes one edit.
func (e edit) apply(t *testing.T, r *release.Release) {
	t.Helper()
	i := slices.IndexFunc(r.Files, func(f release.File) bool { return f.Name == e.File })
	if e.Write != nil {
		if i >= 0 {
			r.Files = slices.Delete(r.Files, i, i+1)
		}
		r.Files = append(r.Files, release.File{Name: e.File, Data: []byte(*e.Write)})
		return
	}
	if i < 0 {
		t.Fatalf("the release has no %s", e.File)
	}
	switch {
	case e.Drop:
		r.Files = slices.Delete(r.Files, i, i+1)
	case e.Text != nil:
		text := string(r.Files[i].Data)
		if n := strings.Count(text, e.Text.Old); n != 1 {
			t.Fatalf("%s has %d times the text %q, and the edit is for one", e.File, n, e.Text.Old)
		}
		r.Files[i].Data = []byte(strings.Replace(text, e.Text.Old, e.Text.New, 1))
	case e.Add != "":
		r.Files[i].Data = append(append(slices.Clone(r.Files[i].Data), "\n---\n"...), strings.Repeat(e.Add, max(1, e.Repeat))...)
	default:
		r.Files[i].Data = e.editObject(t, r.Files[i].Data)
	}
}

// editObject changes one object of a file. The other documents stay as they are.
func (e edit) editObject(t *testing.T, data []byte) []byte {
	t.Helper()
	const separator = "\n---\n"
	kind, name, _ := strings.Cut(e.Object, " ")
	documents := strings.Split(string(data), separator)
	for i, document := range documents {
		if !strings.Contains(document, kind) || !strings.Contains(document, name) {
			continue // reading what can't be it takes most of the time
		}
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("%s: %v", e.File, err)
		}
		if o.GetKind() != kind || o.GetName() != name {
			continue
		}
		switch {
		case e.Remove:
			return []byte(strings.Join(slices.Delete(documents, i, i+1), separator))
		case e.Delete:
			change(t, o.Object, e.Path, nil, true)
		default:
			change(t, o.Object, e.Path, e.Set, false)
		}
		edited, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		documents[i] = string(edited)
		return []byte(strings.Join(documents, separator))
	}
	t.Fatalf("%s has no object %q", e.File, e.Object)
	return nil
}

// change sets or deletes the field at a path. A step into a list is the item's index, where the one
// after the last adds an item, or a text that only this item holds.
func change(t *testing.T, parent any, path []any, value any, remove bool) any {
	t.Helper()
	if len(path) == 0 {
		return value
	}
	switch parent := parent.(type) {
	case map[string]any:
		step, ok := path[0].(string)
		if !ok {
			t.Fatalf("path: %v isn't a field's name", path[0])
		}
		if _, there := parent[step]; remove && len(path) == 1 {
			if !there {
				t.Fatalf("path: there is no %s to delete", step)
			}
			delete(parent, step)
			return parent
		}
		if parent[step] == nil && len(path) > 1 {
			parent[step] = map[string]any{}
		}
		parent[step] = change(t, parent[step], path[1:], value, remove)
		return parent
	case []any:
		step := itemOf(t, parent, path[0])
		if remove && len(path) == 1 {
			return slices.Delete(slices.Clone(parent), step, step+1)
		}
		if step == len(parent) {
			return append(slices.Clone(parent), value)
		}
		parent[step] = change(t, parent[step], path[1:], value, remove)
		return parent
	}
	t.Fatalf("path: %v leads into a value that has no fields", path)
	return nil
}

// itemOf returns the index of the item of a list that a step of a path is about.
func itemOf(t *testing.T, list []any, step any) int {
	t.Helper()
	if number, ok := step.(float64); ok && number >= 0 && int(number) <= len(list) {
		return int(number)
	}
	var found []int
	for i, item := range list {
		if holds(item, step) {
			found = append(found, i)
		}
	}
	if len(found) != 1 {
		t.Fatalf("path: %v isn't an index into a list of %d, and %d items hold it", step, len(list), len(found))
	}
	return found[0]
}

// holds reports whether a value is, or holds anywhere, another one.
func holds(value, wanted any) bool {
	is := func(item any) bool { return holds(item, wanted) }
	switch value := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), is)
	case []any:
		return slices.ContainsFunc(value, is)
	}
	return value == wanted
}
