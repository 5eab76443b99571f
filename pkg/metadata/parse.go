package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	sigsyaml "sigs.k8s.io/yaml"
)

// The fields of a metadata.yaml in clusterctl's type.
const (
	fieldAPIVersion = "apiVersion"
	fieldKind       = "kind"
	fieldMetadata   = "metadata"
	fieldSeries     = "releaseSeries"
	fieldMajor      = "major"
	fieldMinor      = "minor"
	fieldContract   = "contract"
)

const metadataKind = "Metadata"

// Parse reads a metadata.yaml as clusterctl does. The path is only for messages. If clusterctl refuses the file, the
// error is a *ParseError with all problems.
//
// Check warns about content that clusterctl accepts but does not read as intended: unknown fields, duplicate keys,
// further documents, a series without a version, a missing kind.
//
// Source: clusterctl provider contract, "Metadata YAML", "Validation Rules".
func Parse(path string, data []byte) (*File, error) {
	p := &parser{file: &File{Path: path, Data: slices.Clone(data), listLine: 1}, kindLine: 1}
	if root := p.document(data); root != nil {
		p.root(root)
	}
	if !p.decode(data) {
		return nil, &ParseError{Path: path, Problems: p.problems}
	}
	// clusterctl reads the file, so no problem is an error.
	for i := range p.problems {
		p.problems[i].Severity = SeverityWarning
	}
	p.file.warnings = p.problems
	return p.file, nil
}

// parser collects a file and its problems.
type parser struct {
	file     *File
	problems []Problem
	// kindLine is the line of kind or, where kind is missing, of apiVersion.
	kindLine int
	// metadataLine is the line of the field metadata, or 0 if it is missing.
	metadataLine int
}

// refuse adds a problem that may make clusterctl refuse the file.
func (p *parser) refuse(id ProblemID, line int, fix, format string, args ...any) {
	p.problems = append(p.problems, Problem{ID: id, Severity: SeverityError, Line: line, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// warn adds a problem that clusterctl ignores.
func (p *parser) warn(line int, fix, format string, args ...any) {
	p.problems = append(p.problems, Problem{ID: ProblemParse, Severity: SeverityWarning, Line: line, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// document returns the mapping at the root of the only document, or nil without one.
func (p *parser) document(data []byte) *yaml.Node {
	if !utf8.Valid(data) {
		p.refuse(ProblemParse, 0, "save it as UTF-8", "the file isn't a UTF-8 text")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, next yaml.Node
	err := decoder.Decode(&first)
	if errors.Is(err, io.EOF) {
		p.refuse(ProblemParse, 0, "begin with `apiVersion: "+clusterctlv1.GroupVersion.String()+"`, `kind: Metadata` and a list `releaseSeries`", "the file is empty")
		return nil
	}
	if err != nil {
		p.syntax(err)
		return nil
	}
	switch err := decoder.Decode(&next); {
	case errors.Is(err, io.EOF):
	case err != nil:
		p.syntax(err)
	default:
		p.warn(firstLine(&next), "keep one document and remove the others with their `---`", "a second YAML document begins here, but clusterctl reads only the first")
	}
	root := &first
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		p.refuse(ProblemParse, root.Line, "begin with `apiVersion: "+clusterctlv1.GroupVersion.String()+"`", "the file holds no fields but %s", describe(root))
		return nil
	}
	return root
}

// yamlErrorLine matches the line in the text of a YAML decoder's error, the only place that has it.
var yamlErrorLine = regexp.MustCompile(`^yaml: line ([0-9]+): `)

func (p *parser) syntax(err error) {
	message, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if match := yamlErrorLine.FindStringSubmatch(err.Error()); match != nil {
		message = strings.TrimPrefix(err.Error(), match[0])
		line, _ = strconv.Atoi(match[1]) // only digits match
	}
	p.refuse(ProblemParse, line, "fix the YAML in that line or near it", "the file isn't YAML: %s", message)
}

// fields returns the values of a mapping by key and warns about duplicate and unknown keys.
func (p *parser) fields(mapping *yaml.Node, what string, allowed ...string) map[string]field {
	fields := make(map[string]field, len(allowed))
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		before, twice := fields[key.Value] // clusterctl's decoder uses the last
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			p.warn(key.Line, "write its fields out", "%s takes fields from elsewhere by a merge key", what)
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, key.Value):
			p.warn(key.Line, "remove it or correct its spelling; "+what+" has the fields "+strings.Join(allowed, ", "), "%s has no field %s, and clusterctl ignores it", what, describe(key))
		case twice:
			p.warn(key.Line, "keep one of the two", "%s is given a second time (first in line %d)", key.Value, before.line)
			fallthrough
		default:
			fields[key.Value] = field{line: key.Line, value: value}
		}
	}
	return fields
}

// field is the value of a key and the line of the key.
type field struct {
	line  int
	value *yaml.Node
}

// scalar returns the field's value if it is text or a number, with an alias resolved.
func (f field) scalar() (*yaml.Node, bool) {
	value := f.value
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	return value, value.Kind == yaml.ScalarNode && value.ShortTag() != "!!null"
}

func (p *parser) root(root *yaml.Node) {
	fields := p.fields(root, "metadata.yaml", fieldAPIVersion, fieldKind, fieldMetadata, fieldSeries)
	p.metadataLine = fields[fieldMetadata].line
	p.apiVersion(fields, root.Line)
	p.kind(fields)
	list, ok := fields[fieldSeries]
	if !ok {
		p.refuse(ProblemSeriesPresent, root.Line, "list each major.minor version that was released, with its contract", "releaseSeries is missing, and clusterctl accepts no release without a series")
		return
	}
	p.file.listLine = list.line
	switch {
	case list.value.Kind == yaml.SequenceNode && len(list.value.Content) > 0:
	case list.value.Kind == yaml.SequenceNode, list.value.ShortTag() == "!!null":
		p.refuse(ProblemSeriesPresent, list.line, "list each major.minor version that was released, with its contract", "releaseSeries is empty, and clusterctl accepts no release without a series")
		return
	default:
		p.refuse(ProblemParse, list.line, "write `- major: 0`, `minor: 1` and `contract: v1beta2` for each series", "releaseSeries isn't a list but %s", describe(list.value))
		return
	}
	p.file.list = list.value
	for _, entry := range list.value.Content {
		p.file.series = append(p.file.series, p.series(entry))
	}
}

func (p *parser) apiVersion(fields map[string]field, line int) {
	want := clusterctlv1.GroupVersion.String()
	given, ok := fields[fieldAPIVersion]
	if !ok {
		p.refuse(ProblemAPIVersion, line, "add `apiVersion: "+want+"`", "apiVersion is missing, and clusterctl refuses the file without it")
		return
	}
	p.kindLine = given.line
	if value, ok := given.scalar(); !ok || value.Value != want {
		p.refuse(ProblemAPIVersion, given.line, "write `apiVersion: "+want+"`; the contract goes into the series", "apiVersion is %s, which clusterctl refuses", describe(value))
	}
}

func (p *parser) kind(fields map[string]field) {
	given, ok := fields[fieldKind]
	if !ok {
		return
	}
	p.kindLine = given.line
	value, ok := given.scalar()
	// clusterctl treats an empty kind as a missing one.
	if (ok && (value.Value == metadataKind || value.Value == "")) || value.ShortTag() == "!!null" {
		return
	}
	p.refuse(ProblemKind, given.line, "write `kind: "+metadataKind+"`", "kind is %s, which clusterctl refuses", describe(value))
}

// series returns one entry of the list, as far as it is readable.
func (p *parser) series(entry *yaml.Node) Series {
	s := Series{Line: entry.Line}
	if entry.Kind != yaml.MappingNode {
		p.refuse(ProblemParse, entry.Line, "write it as `- major: 0`, `minor: 1` and `contract: v1beta2`", "a release series is %s", describe(entry))
		return s
	}
	fields := p.fields(entry, "a release series", fieldMajor, fieldMinor, fieldContract)
	_, hasMajor := fields[fieldMajor]
	_, hasMinor := fields[fieldMinor]
	if !hasMajor && !hasMinor {
		p.warn(entry.Line, "add `major` and `minor`", "a release series has no version")
	}
	// If one of the two is missing it is 0, as Kubernetes' encoders write the type.
	s.Major = p.number(fields, fieldMajor)
	s.Minor = p.number(fields, fieldMinor)
	s.Contract = p.contract(fields)
	return s
}

// decimal matches a number that all YAML decoders read alike: they differ for 010, 0x1 or 1_0.
var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func (p *parser) number(fields map[string]field, name string) int32 {
	given, ok := fields[name]
	if !ok {
		return 0
	}
	value, ok := given.scalar()
	if ok && value.ShortTag() == "!!int" && decimal.MatchString(value.Value) {
		if number, err := strconv.ParseInt(value.Value, 10, 32); err == nil {
			return int32(number)
		}
	}
	p.refuse(ProblemParse, given.line, "write a plain number such as `"+name+": 1`, without quotes", "%s is %s", name, describe(value))
	return 0
}

func (p *parser) contract(fields map[string]field) string {
	given, ok := fields[fieldContract]
	if !ok {
		return "" // Check reports it
	}
	value, ok := given.scalar()
	if value.ShortTag() == "!!null" {
		return ""
	}
	if !ok || value.ShortTag() != "!!str" {
		p.refuse(ProblemParse, given.line, "write the contract in the labels of its CRDs, e.g. `contract: "+newestContract+"`", "the contract of a release series is %s", describe(value))
	}
	return value.Value
}

// decoder is clusterctl's: it ignores unknown fields.
// Source: clusterctl, client/repository metadataClient.Get.
var decoder = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := clusterctlv1.AddToScheme(scheme); err != nil {
		panic(err) // clusterctl's own types do not fit together
	}
	return serializer.NewCodecFactory(scheme).UniversalDecoder()
})

// decode reads the text again with clusterctl's decoder into clusterctl's type, whose series count. It returns false,
// with a problem that says why, if clusterctl refuses the file.
func (p *parser) decode(data []byte) bool {
	typed := &clusterctlv1.Metadata{}
	err := runtime.DecodeInto(decoder(), data, typed)
	if err != nil || typed.APIVersion != clusterctlv1.GroupVersion.String() || typed.Kind != metadataKind && typed.Kind != "" || len(typed.ReleaseSeries) == 0 {
		if !slices.ContainsFunc(p.problems, func(p Problem) bool { return p.Severity == SeverityError }) {
			if err == nil {
				err = errors.New("apiVersion, kind or releaseSeries is wrong")
			}
			p.refuse(ProblemParse, 0, "correct the field that clusterctl's decoder names", "clusterctl's own decoder refuses the file: %v", err)
		}
		return false
	}
	read := p.file.series
	p.file.series = make([]Series, 0, len(typed.ReleaseSeries))
	for i, s := range typed.ReleaseSeries {
		line := p.file.listLine
		if len(read) == len(typed.ReleaseSeries) {
			line = read[i].Line
		}
		p.file.series = append(p.file.series, Series{Major: s.Major, Minor: s.Minor, Contract: s.Contract, Line: line})
	}
	if err := sigsyaml.UnmarshalStrict(data, &clusterctlv1.Metadata{}); err != nil && len(p.problems) == 0 {
		// All other fields have been checked.
		p.warn(p.metadataLine, "remove it or correct its spelling", "metadata has a field that clusterctl ignores: %v", err)
	}
	if len(p.problems) == 0 && !slices.Equal(read, p.file.series) {
		p.warn(p.file.listLine, "write each series in plain YAML, without anchors and tags", "clusterctl reads other release series here than a newer YAML decoder does")
	}
	if typed.Kind == "" {
		p.refuse(ProblemKind, p.kindLine, "add `kind: "+metadataKind+"`", "kind is missing: clusterctl v1.11.0 refuses the file, later versions accept it")
	}
	return true
}

// describe describes a node for a message.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "the alias *" + node.Value
	case yaml.ScalarNode:
		if node.ShortTag() == "!!null" {
			return "empty"
		}
		return strconv.Quote(node.Value)
	default:
		return "empty"
	}
}

// firstLine returns the line of a document's first content.
func firstLine(document *yaml.Node) int {
	if len(document.Content) > 0 {
		return document.Content[0].Line
	}
	return document.Line
}
