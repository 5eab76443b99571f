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

// caseFile is testdata/checks/<id>.yaml: edits of this repository's own release, in which the check has to find
// something (bad) or nothing (good).
type caseFile struct {
	Bad  []checkCase `json:"bad"`
	Good []checkCase `json:"good"`
}

// checkCase is one edited release.
type checkCase struct {
	Name string `json:"name"`
	// Provider and Version replace those of the own release. Provider is a label, such as "bootstrap-demo".
	Provider string `json:"provider"`
	Version  string `json:"version"`
	// Rename replaces the provider's name.
	Rename string `json:"rename"`
	// Empty starts with a release without files.
	Empty bool   `json:"empty"`
	Edits []edit `json:"edits"`
	// Previous are the edits that create the previous release from the own one.
	Previous []edit `json:"previous"`
	// With are releases of other providers that are checked together with the release.
	With []checkCase `json:"with"`
	// Tree has the files of the release's source tree by path, including the release file.
	Tree map[string]string `json:"tree"`
	// Dump is checked instead of a release: the objects in the namespace default of a dump.
	Dump string `json:"dump"`
	// Want has a text for each finding of the check: "<severity> <file> | <object> | <path> | <part of the message>".
	// Parts at the end may be left out.
	Want []string `json:"want"`
}

// edit changes one file, or one object of it.
type edit struct {
	File string `json:"file"`
	// Write creates the file or replaces its content; Drop removes it from the release.
	Write *string `json:"write"`
	Drop  bool    `json:"drop"`
	// Text replaces a text that must occur exactly once.
	Text *struct {
		Old string `json:"old"`
		New string `json:"new"`
	} `json:"text"`
	// Object is "Kind name", and selects the object that the fields below edit.
	Object string `json:"object"`
	// Remove removes the object.
	Remove bool `json:"remove"`
	// Set sets a field, Delete removes it; Path has the steps to the field, numbers for items of lists.
	Path   []any `json:"path"`
	Set    any   `json:"set"`
	Delete bool  `json:"delete"`
	// Add appends YAML documents to the file, Repeat times.
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
					t.Fatal("the bad case has no want")
				}
				compareFindings(t, check.ID, c)
			})
		}
		for _, c := range cases.Good {
			t.Run(check.ID+"/good/"+c.Name, func(t *testing.T) { compareFindings(t, check.ID, c) })
		}
	}
}

// compareFindings runs a check on an edited release and compares its findings with those of the case's Want.
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
			t.Errorf("the finding has no message or no fix: %+v", f)
		}
		got := fmt.Sprintf("%s %s | %s | %s | %s", f.Severity, f.File, f.Object, f.Path, f.Message)
		i := slices.IndexFunc(wanted, func(want string) bool { return isFinding(got, want) })
		if i < 0 {
			t.Errorf("unexpected finding: %s", got)
			return
		}
		wanted = slices.Delete(wanted, i, i+1)
	})
	for _, want := range wanted {
		t.Errorf("missing finding: %s", want)
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

// world returns the result of the checks of the dump.
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

// subject returns the edited release, with the previous release if the case has one.
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

// setSource writes the case's tree, and sets it and the provider's entry in the release file in the subject.
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

// isFinding reports whether a finding matches want: the fourth part must be contained, all others must be equal.
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

// apply returns the own release with the case's edits. It is read from files, as the command does.
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

// apply applies one edit to the release.
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
			t.Fatalf("%s contains the text %q %d times, want once", e.File, e.Text.Old, n)
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
			continue // decoding all documents would take most of the time
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

// change sets or deletes the field at a path. A step into a list is the item's index, or a value that only this
// item contains. The index after the last one appends an item.
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
		if _, exists := parent[step]; remove && len(path) == 1 {
			if !exists {
				t.Fatalf("path: the field %s to delete is missing", step)
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

// itemOf returns the index of the list item that a step of a path selects.
func itemOf(t *testing.T, list []any, step any) int {
	t.Helper()
	if number, ok := step.(float64); ok && number >= 0 && int(number) <= len(list) {
		return int(number)
	}
	var found []int
	for i, item := range list {
		if contains(item, step) {
			found = append(found, i)
		}
	}
	if len(found) != 1 {
		t.Fatalf("path: %v isn't an index into a list of %d, and %d items contain it, want 1", step, len(list), len(found))
	}
	return found[0]
}

// contains reports whether a value equals another one, or contains it at any depth.
func contains(value, wanted any) bool {
	is := func(item any) bool { return contains(item, wanted) }
	switch value := value.(type) {
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), is)
	case []any:
		return slices.ContainsFunc(value, is)
	}
	return value == wanted
}
