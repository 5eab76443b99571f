package release

import (
	"bytes"
	_ "embed" // for the schema
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	yamlv3 "go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"sigs.k8s.io/yaml"
)

//go:generate sh -c "cd ../.. && go run ./hack/schema pkg/release/clusterctl-release.schema.json"

// configSchema is generated from Config's types, so editors and Parse check the same schema.
//
//go:embed clusterctl-release.schema.json
var configSchema []byte

// ConfigSchema returns the JSON Schema of the release file, for editors.
func ConfigSchema() []byte {
	return bytes.Clone(configSchema)
}

var compileConfigSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(configSchema))
	if err != nil {
		return nil, fmt.Errorf("reading the schema of the release file: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(ConfigFile, doc); err != nil {
		return nil, fmt.Errorf("adding the schema of the release file: %w", err)
	}
	return compiler.Compile(ConfigFile)
})

// ConfigError is one defect of a release file.
type ConfigError struct {
	// File is the name of the release file as the caller gave it.
	File string
	// Line and Column count from 1; 0 means the file as a whole.
	Line, Column int
	// Field is the path of the field, e.g. providers[0].type; "" for the file as a whole.
	Field string
	// Message says what is wrong and what to do.
	Message string
}

func (e *ConfigError) Error() string {
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Field == "" {
		return place + ": " + e.Message
	}
	return place + ": " + e.Field + ": " + e.Message
}

// ErrNoConfig means that a tree has no release file.
var ErrNoConfig = errors.New("no release file")

// Load reads a release file. The error is ErrNoConfig if the file is missing, and joins one *ConfigError for each
// defect.
func Load(file string) (*Config, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the user names the file to read
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w at %s: write one with `clusterctl release init`, or name it with --config", ErrNoConfig, file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the release file: %w", err)
	}
	return Parse(file, data)
}

// Parse reads a release file's text; errors call it name.
func Parse(name string, data []byte) (*Config, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(data))
	var document yamlv3.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &ConfigError{File: name, Message: "the file is empty: write one with `clusterctl release init`"}
		}
		return nil, &ConfigError{File: name, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := decoder.Decode(new(yamlv3.Node)); !errors.Is(err, io.EOF) {
		return nil, &ConfigError{File: name, Message: "the file has more than one YAML document: keep one, and list several providers under providers"}
	}
	if err := document.Decode(new(any)); err != nil { // reports duplicate keys and bad anchors
		return nil, &ConfigError{File: name, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	// It converts to JSON first, as Kubernetes reads YAML: a date stays a text, and keys are texts.
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, &ConfigError{File: name, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, &ConfigError{File: name, Message: err.Error()}
	}
	if problems := validateSchema(name, &document, value); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	config := &Config{Path: name}
	if err := yaml.Unmarshal(data, config); err != nil {
		return nil, &ConfigError{File: name, Message: err.Error()}
	}
	if problems := config.validate(name, &document); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return config, nil
}

// validateSchema validates the document against the schema and returns the defects in the order of the file.
func validateSchema(name string, document *yamlv3.Node, value any) []error {
	schema, err := compileConfigSchema()
	if err != nil {
		return []error{err}
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(value); err == nil {
		return nil
	} else if !errors.As(err, &invalid) {
		return []error{&ConfigError{File: name, Message: err.Error()}}
	}
	var faults []*ConfigError
	collectSchemaErrors(invalid, func(e *jsonschema.ValidationError) {
		faults = append(faults, schemaErrors(name, document, e)...)
	})
	slices.SortStableFunc(faults, func(a, b *ConfigError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	problems := make([]error, 0, len(faults))
	for _, e := range faults {
		problems = append(problems, e)
	}
	return problems
}

// collectSchemaErrors calls report for the errors that name a defect, not for those that only group others.
func collectSchemaErrors(e *jsonschema.ValidationError, report func(*jsonschema.ValidationError)) {
	// Under oneOf every branch reports errors; only the choice helps.
	if _, isChoice := e.ErrorKind.(*kind.OneOf); isChoice || len(e.Causes) == 0 {
		report(e)
		return
	}
	for _, cause := range e.Causes {
		collectSchemaErrors(cause, report)
	}
}

// schemaErrors converts one defect to errors with a place in the file.
func schemaErrors(name string, document *yamlv3.Node, e *jsonschema.ValidationError) []*ConfigError {
	at := func(location []string, key bool, text string) *ConfigError {
		line, column := position(document, location, key)
		return &ConfigError{File: name, Line: line, Column: column, Field: fieldPath(location), Message: text}
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		unknown := make([]*ConfigError, 0, len(k.Properties))
		for _, property := range k.Properties {
			unknown = append(unknown, at(append(slices.Clone(e.InstanceLocation), property), true, "the field does not exist"))
		}
		return unknown
	case *kind.Required:
		return []*ConfigError{at(e.InstanceLocation, false, "lacks "+strings.Join(k.Missing, ", "))}
	case *kind.OneOf:
		return []*ConfigError{at(e.InstanceLocation, false, "needs either path (copy files) or kustomize (build one), not both")}
	case *kind.Type:
		text := fmt.Sprintf("is of type %s and should be of type %s", k.Got, strings.Join(k.Want, " or "))
		if k.Got != "object" && k.Got != "array" && slices.Contains(k.Want, "string") {
			text += ": put it in quotes"
		}
		return []*ConfigError{at(e.InstanceLocation, false, text)}
	}
	return []*ConfigError{at(e.InstanceLocation, false, e.ErrorKind.LocalizedString(message.NewPrinter(language.English)))}
}

// position returns the place in the document of the value (or, with key, its key) at a location.
func position(document *yamlv3.Node, location []string, key bool) (line, column int) {
	node := document
	if node.Kind == yamlv3.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	for i, step := range location {
		if node.Kind == yamlv3.AliasNode {
			node = node.Alias
		}
		var keyNode, next *yamlv3.Node
		switch node.Kind {
		case yamlv3.MappingNode:
			for j := 0; j+1 < len(node.Content); j += 2 {
				if node.Content[j].Value == step {
					keyNode, next = node.Content[j], node.Content[j+1]
				}
			}
		case yamlv3.SequenceNode:
			var index int
			if _, err := fmt.Sscanf(step, "%d", &index); err == nil && index >= 0 && index < len(node.Content) {
				next = node.Content[index]
			}
		}
		if next == nil {
			break
		}
		if key && i == len(location)-1 && keyNode != nil {
			return keyNode.Line, keyNode.Column
		}
		node = next
	}
	return node.Line, node.Column
}

// fieldPath writes a location in the usual form: providers[0].type.
func fieldPath(location []string) string {
	var b strings.Builder
	for _, step := range location {
		switch {
		case step != "" && strings.Trim(step, "0123456789") == "":
			fmt.Fprintf(&b, "[%s]", step)
		case b.Len() == 0:
			b.WriteString(step)
		default:
			b.WriteString("." + step)
		}
	}
	return b.String()
}

// validate reports defects that a schema can't express.
func (c *Config) validate(name string, document *yamlv3.Node) []error {
	var problems []error
	report := func(text string, location ...string) {
		line, column := position(document, location, false)
		problems = append(problems, &ConfigError{File: name, Line: line, Column: column, Field: fieldPath(location), Message: text})
	}
	checkPath := func(p string, location ...string) {
		if p != "" && !filepath.IsLocal(filepath.FromSlash(p)) {
			report(fmt.Sprintf("%q is outside of the tree: paths are relative to the release file's folder", p), location...)
		}
	}
	checkPath(c.Metadata, "metadata")
	seen := map[string]int{}
	for i, p := range c.Providers {
		at := func(steps ...string) []string {
			return append([]string{"providers", fmt.Sprint(i)}, steps...)
		}
		if err := p.Provider().Validate(); err != nil {
			report(err.Error(), at("name")...)
		}
		if first, ok := seen[p.Provider().Label()]; ok {
			report(fmt.Sprintf("providers[%d] is already %s", first, p.Provider().Label()), at("name")...)
		} else {
			seen[p.Provider().Label()] = i
		}
		checkPath(p.Kustomize, at("kustomize")...)
		checkPath(p.Metadata, at("metadata")...)
		for _, list := range []struct {
			field    string
			assets   []AssetConfig
			nameRule func(string) error
		}{
			{"templates", p.Templates, func(s string) error { _, err := Flavor(s); return err }},
			{"clusterClasses", p.ClusterClasses, func(s string) error { _, err := ClusterClassName(s); return err }},
			{"files", p.Files, func(string) error { return nil }},
		} {
			for j, asset := range list.assets {
				location := at(list.field, fmt.Sprint(j))
				checkPath(asset.Path, append(location, "path")...)
				checkPath(asset.Kustomize, append(location, "kustomize")...)
				if _, err := path.Match(asset.Path, ""); err != nil {
					report(fmt.Sprintf("%q isn't a pattern: %v", asset.Path, err), append(location, "path")...)
				}
				if asset.Kustomize != "" && asset.As == "" {
					report("needs 'as', the name of the file that is built", location...)
				}
				if asset.As != "" {
					if err := list.nameRule(asset.As); err != nil {
						report(err.Error(), append(location, "as")...)
					}
				}
			}
		}
		for j, image := range p.Images {
			if image.NewTag != "" && image.Digest != "" {
				report("has both newTag and digest: keep one", at("images", fmt.Sprint(j))...)
			}
		}
	}
	return problems
}
