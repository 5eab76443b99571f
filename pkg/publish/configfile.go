package publish

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/drone/envsubst/v2"
	"go.yaml.in/yaml/v3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/yamledit"
)

// configFile is the clusterctl configuration at a local repository's root, for clusterctl's flag --config.
const configFile = "clusterctl.yaml"

// RepositoryURL returns clusterctl's URL of a file in a local repository. It also escapes '$', because clusterctl
// replaces variables in the URLs of its configuration.
func RepositoryURL(root string, provider release.Provider, version, file string) string {
	path := url.URL{Path: filepath.ToSlash(filepath.Join(root, provider.Label(), version, file))}
	return "file://" + strings.ReplaceAll(path.EscapedPath(), "$", "%24")
}

// sameRepository reports whether clusterctl reads the same place from two URLs. The first has the form of a
// configuration, where it may contain variables and be a plain path.
func sameRepository(written, wanted string) bool {
	value, err := envsubst.Eval(written, os.Getenv)
	if err != nil {
		return false
	}
	a, errA := url.Parse(value)
	b, errB := url.Parse(wanted)
	if errA != nil || errB != nil || a.Scheme != "" && a.Scheme != b.Scheme {
		return false
	}
	return a.Path == b.Path
}

// planConfig returns the changes to the clusterctl.yaml of a local repository with which clusterctl finds the releases.
// Entries of other providers, all other keys and the comments stay.
//
// The version in a URL is the default version of clusterctl. It is "latest", because a number would be that of the last
// published release, even of a fix of an old series.
func planConfig(root string, releases []*release.Release) (*ConfigPlan, error) {
	plan := &ConfigPlan{Path: filepath.Join(root, configFile), Action: store.Create, mode: fileMode}
	var text []byte
	info, err := os.Lstat(plan.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, withAdvice(fmt.Errorf("looking for the repository's %s: %w", configFile, err))
	default:
		if text, err = os.ReadFile(plan.Path); err != nil {
			return nil, withAdvice(fmt.Errorf("reading the repository's %s: %w", configFile, err))
		}
		plan.Action = store.Update
		plan.mode = info.Mode().Perm() // it may hold variables that are not for everybody
	}
	plan.text, plan.Entries, err = editProviders(plan.Path, text, store.Entries(releases, func(r *release.Release) string {
		return RepositoryURL(root, r.Provider, store.Latest, r.Provider.ComponentsFile())
	}))
	if err != nil {
		return nil, err
	}
	if plan.Action == store.Update && len(plan.Entries) == 0 {
		plan.Action = store.Unchanged
	}
	if plan.Action == store.Update && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no plain file, and would be replaced by one: make it a plain file, or remove it", plan.Path)
	}
	return plan, nil
}

// configuredProvider returns the entry of a clusterctl.yaml for a provider. Of several entries, clusterctl uses the
// last.
func configuredProvider(path string, provider release.Provider) (store.Entry, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the repository's own file
	if err != nil {
		return store.Entry{}, fmt.Errorf("reading the repository's %s: %w", configFile, err)
	}
	doc, err := parseConfig(path, text)
	if err != nil {
		return store.Entry{}, err
	}
	for _, item := range slices.Backward(doc.items) {
		if item.name == provider.Name && item.kind == string(provider.Type) {
			return store.Entry{Name: item.name, Type: provider.Type, URL: item.url}, nil
		}
	}
	return store.Entry{}, fmt.Errorf("%s has no entry for %s of type %s", path, provider.Name, provider.Type)
}

// providersKey is the key of the list of providers; clusterctl takes it in any case.
const providersKey = "providers"

// configDocument is a clusterctl.yaml with the places of its nodes.
type configDocument struct {
	path string
	text *yamledit.Text
	data []byte
	// values is what the text means.
	values map[string]any
	// root is the mapping of the document; nil if it is empty.
	root *yaml.Node
	// key and list are those of the providers; nil if there are none.
	key, list *yaml.Node
	items     []configItem
}

// configItem is an entry of the list of providers.
type configItem struct {
	name, url, kind string
	line            int
	// urlNode is the node of the URL; nil if the entry itself does not contain it.
	urlNode *yaml.Node
	// value is what the entry means, with its keys in lower case, as clusterctl reads them.
	value map[string]any
}

// problem returns an error at a line of the file; line 0 stands for the whole file.
func (d *configDocument) problem(line int, format string, args ...any) error {
	place := d.path
	if line > 0 {
		place += fmt.Sprint(":", line)
	}
	return fmt.Errorf("%s: %w", place, fmt.Errorf(format, args...))
}

// parseConfig reads a clusterctl.yaml. What clusterctl would not read is an error.
func parseConfig(path string, data []byte) (*configDocument, error) {
	d := &configDocument{path: path, data: data}
	if !utf8.Valid(data) {
		return nil, d.problem(0, "the file isn't UTF-8 text: save it as UTF-8")
	}
	var err error
	if d.text, err = yamledit.NewText(data); err != nil {
		return nil, d.problem(0, "%w: save it with line breaks of one of these two kinds", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err = decoder.Decode(&document); err == nil {
		err = decoder.Decode(&yaml.Node{})
	}
	switch {
	case err == nil:
		return nil, d.problem(0, "the file has more than one document, and clusterctl reads only the first: keep one")
	case !errors.Is(err, io.EOF):
		return nil, d.problem(0, "the file isn't valid YAML; correct it, then publish again: %w", err)
	case len(document.Content) == 0 || isNull(document.Content[0]) && document.Content[0].Value == "":
		return d, nil
	}
	d.root = document.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return nil, d.problem(d.root.Line, "the file isn't a mapping: clusterctl's configuration has keys, such as providers")
	}
	if err := d.uniqueKeys(d.root); err != nil {
		return nil, err
	}
	if err := d.root.Decode(&d.values); err != nil {
		return nil, d.problem(0, "clusterctl would not read it; correct it, then publish again: %w", err)
	}
	return d, d.findProviders()
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

// uniqueKeys refuses duplicate keys. clusterctl ignores their case.
func (d *configDocument) uniqueKeys(mapping *yaml.Node) error {
	lines := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := mapping.Content[i]
		if key.Kind != yaml.ScalarNode {
			continue
		}
		name := strings.ToLower(key.Value)
		if line, ok := lines[name]; ok {
			return d.problem(key.Line, "the key %q is already in line %d: keep one of them", key.Value, line)
		}
		lines[name] = key.Line
	}
	return nil
}

func (d *configDocument) findProviders() error {
	if d.key, d.list = fieldOf(d.root, providersKey); d.list == nil {
		return nil
	}
	list := resolved(d.list)
	switch {
	case isNull(list):
		return nil
	case list.Kind != yaml.SequenceNode:
		return d.problem(d.list.Line, "providers isn't a list: write entries with name, url and type under it")
	}
	for _, node := range list.Content {
		item, err := d.readItem(node)
		if err != nil {
			return err
		}
		d.items = append(d.items, item)
	}
	return nil
}

func (d *configDocument) readItem(node *yaml.Node) (configItem, error) {
	item := configItem{line: node.Line, value: map[string]any{}}
	mapping := resolved(node)
	if mapping.Kind != yaml.MappingNode {
		return item, d.problem(node.Line, "an entry of providers isn't a mapping: it has name, url and type")
	}
	if err := d.uniqueKeys(mapping); err != nil {
		return item, err
	}
	var value map[string]any
	if err := mapping.Decode(&value); err != nil {
		return item, d.problem(node.Line, "clusterctl would not read this entry of providers: %w", err)
	}
	for k, v := range value {
		item.value[strings.ToLower(k)] = v
	}
	item.name, item.kind, item.url = textOf(item.value["name"]), textOf(item.value["type"]), textOf(item.value["url"])
	_, item.urlNode = fieldOf(node, "url")
	return item, nil
}

// fieldOf returns the last key of that name in a mapping, in any case, and its value.
func fieldOf(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if strings.EqualFold(mapping.Content[i].Value, name) {
			key, value = mapping.Content[i], mapping.Content[i+1]
		}
	}
	return key, value
}

func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// textOf returns a value as clusterctl reads it into a text: a number becomes its digits.
func textOf(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
