package templates

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
)

// Known contains the kinds and classes that samples have to fit.
type Known struct {
	Kinds *schemas.Kinds
	// Classes are the ClusterClass definitions that Clusters may name.
	Classes []release.File
	// classes are the ClusterClasses of files that were read; nil is none.
	classes map[string]*manifest.Document
}

// Samples are values with which a template can be rendered.
type Samples struct {
	// Values are those of all variables that a user must set, and of those that clusterctl's arguments set.
	Values map[string]string
	// Variables are those of the template.
	Variables []Variable
	// Generated are the variables with generated values, in order, without those that clusterctl sets.
	Generated []string
	// Published is the template before its variables are replaced, or nil if it isn't YAML then.
	Published *Published
	// Blocks are the variables among Generated that stand for more than single values.
	Blocks []Block
	// defaults are those of the variables that have one.
	defaults map[string]string
}

// Sample returns values for the variables of a template: the given ones, and for the rest values that fit the schemas
// of the fields with the variables, if possible. A variable that stands for lines of YAML is empty. The error is that
// of variables which clusterctl can't read.
func Sample(f release.File, known *Known, given map[string]string) (*Samples, error) {
	variables, err := Variables(f)
	if err != nil {
		return nil, err
	}
	s := &Samples{Values: Guess(variables), Variables: variables, defaults: map[string]string{}}
	common := Guess(nil)
	for _, v := range variables {
		_, isCommon := common[v.Name]
		if _, isGiven := given[v.Name]; v.Default == nil && !isGiven && !isCommon {
			s.Generated = append(s.Generated, v.Name)
		}
	}
	maps.Copy(s.Values, given)
	if s.Published, err = publish(f, variables); err != nil {
		s.Published = nil
		return s, nil //nolint:nilerr // clusterctl says what it thinks of the file when it renders it
	}
	for _, v := range variables {
		if v.Default != nil {
			s.defaults[v.Name] = *v.Default
		}
	}
	s.fit(known, f.Name)
	for _, b := range s.Published.Blocks {
		if slices.Contains(s.Generated, b.Variable) {
			s.Values[b.Variable] = ""
			s.Blocks = append(s.Blocks, b)
		}
	}
	return s, nil
}

// SampleFlavor returns samples for a cluster template and for the classes that it names with them. The error is that of
// Sample for one of the files.
func SampleFlavor(f release.File, known *Known, given map[string]string) (*Samples, error) {
	s, err := Sample(f, known, given)
	if err != nil {
		return nil, err
	}
	for _, class := range s.ClassFiles(known) {
		more, err := Sample(class, known, s.Values)
		if err != nil {
			return nil, err
		}
		s.Values, s.Generated = more.Values, append(s.Generated, more.Generated...)
	}
	slices.Sort(s.Generated)
	return s, nil
}

// variable matches the variables of a text of a published document.
var variable = regexp.MustCompile(`\$\{(\w+)\}`)

// use is a field with a variable.
type use struct {
	manifest.Scalar
	document *manifest.Document
	// field is the field's schema, or nil if it is not known.
	field *schemas.Field
	// only are the allowed values of the field, if they are restricted beyond its schema.
	only []string
	// allows restricts a text further, or is nil.
	allows func(text string) []string
}

// fit chooses the generated values: those of classes' names first, because the class restricts its variables.
func (s *Samples) fit(known *Known, file string) {
	usesOf, namesClass := map[string][]use{}, map[string]bool{}
	for _, d := range s.Published.Documents {
		for _, scalar := range s.Published.scalars[d] {
			for _, match := range variable.FindAllStringSubmatch(scalar.Text, -1) {
				name := match[1]
				usesOf[name] = append(usesOf[name], use{Scalar: scalar, document: d})
				namesClass[name] = namesClass[name] || isClassName(d, scalar.Path)
			}
		}
	}
	for _, classes := range []bool{true, false} {
		for _, name := range s.Generated {
			uses := usesOf[name]
			if namesClass[name] != classes {
				continue
			}
			for i := range uses {
				s.look(known, file, &uses[i])
			}
			s.choose(name, uses)
			s.addBlocks(name, uses)
		}
	}
}

// look determines the allowed values of a field.
func (s *Samples) look(known *Known, file string, u *use) {
	d, last := u.document, len(u.Path)-1
	if last < 0 {
		return
	}
	switch {
	case isClassName(d, u.Path):
		for _, class := range known.Classes {
			if name, err := release.ClusterClassName(class.Name); err == nil {
				u.only = append(u.only, name)
			}
		}
	case isObjectName(u.Path) && isKind(d, "ClusterClass"):
		if name, err := release.ClusterClassName(file); err == nil {
			u.only = []string{name}
		}
	}
	switch {
	case isObjectName(u.Path):
		u.allows = validation.IsDNS1123Subdomain
	case last > 0 && (u.Path[last-1] == "labels" || u.Path[last-1] == "matchLabels"):
		u.allows = validation.IsValidLabelValue
	}
	if u.field = s.topologyField(known, u); u.field == nil {
		u.field = known.Kinds.Field(d.Object.GroupVersionKind(), u.Path)
	}
}

// fits reports whether a field allows a value of a variable.
func (s *Samples) fits(u use, name, value string) bool {
	text := s.replace(u.Text, name, value)
	var v any = text
	if !u.Quoted {
		v = scalarValue(text)
	}
	written, isText := v.(string)
	switch {
	case u.only != nil:
		return slices.Contains(u.only, written)
	case u.allows != nil && (!isText || len(u.allows(written)) > 0):
		return false
	case u.field == nil:
		return v != nil
	}
	return u.field.Accepts(v)
}

// choose sets a variable to the first value that fits all of its uses, or most of them.
func (s *Samples) choose(name string, uses []use) {
	best, most := s.Values[name], -1
	try := func(value string) {
		n := 0
		for _, u := range uses {
			if s.fits(u, name, value) {
				n++
			}
		}
		if n > most {
			best, most = value, n
		}
	}
	// The whole text of a field may contain more than the variable.
	tryFor := func(u use, values []any) {
		before, after, _ := strings.Cut(s.replace(u.Text, name, "\x00"), "\x00")
		for _, value := range values {
			text, isText := value.(string)
			if rest, ok := strings.CutPrefix(text, before); isText && ok && strings.HasSuffix(rest, after) {
				try(strings.TrimSuffix(rest, after))
			}
			if _, stays := scalarValue(text).(string); isText && (stays || u.Quoted) {
				try(text)
			} else if data, err := json.Marshal(value); err == nil {
				try(string(data)) // in quotes, if the text would be read as another type
			}
		}
	}
	for _, u := range uses {
		for _, text := range u.only {
			tryFor(u, []any{text})
		}
		if u.field != nil {
			tryFor(u, u.field.Named())
		}
	}
	try(s.Values[name])
	try(word(name))
	for _, u := range uses {
		if most < len(uses) && u.field != nil {
			tryFor(u, u.field.Examples())
		}
	}
	s.Values[name] = best
}

// replace returns a text with its variables replaced: one by the given value, the others by theirs.
func (s *Samples) replace(text, name, value string) string {
	return variable.ReplaceAllStringFunc(text, func(use string) string {
		other := variable.FindStringSubmatch(use)[1]
		if other == name {
			return value
		}
		if set, ok := s.Values[other]; ok {
			return set
		}
		return s.defaults[other]
	})
}

// addBlocks adds the uses of a variable that stand for a value with fields: the schema requires it or, if it allows
// anything or is unknown, the variable is alone on a line.
func (s *Samples) addBlocks(name string, uses []use) {
	for _, u := range uses {
		isValue := u.Text == "${"+name+"}" && !u.Quoted && u.only == nil && u.allows == nil
		if isValue && (u.field != nil && u.field.HasFields() || u.Below && (u.field == nil || u.field.IsUntyped())) {
			s.Blocks = append(s.Blocks, Block{Variable: name, Line: u.document.Place(u.Path...).Line, Document: u.document, Path: u.Path, Value: true})
		}
	}
}

// scalarValue returns the YAML value of a text, as Kubernetes reads it; nil is null, or no YAML.
func scalarValue(text string) any {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil
	}
	if number, ok := value.(float64); ok && number == float64(int64(number)) {
		return int64(number)
	}
	return value
}

// isObjectName reports whether a field is an object's name.
func isObjectName(path []any) bool {
	return len(path) == 2 && path[0] == "metadata" && path[1] == "name"
}

// isKind reports whether a document has a kind of Cluster API's core group.
func isKind(d *manifest.Document, kind string) bool {
	return d.Object.GroupVersionKind().GroupKind() == clusterv1.GroupVersion.WithKind(kind).GroupKind()
}

// isClassName reports whether a field of a Cluster names its class.
func isClassName(d *manifest.Document, path []any) bool {
	isPath := slices.Equal(path, []any{"spec", "topology", "class"}) || slices.Equal(path, []any{"spec", "topology", "classRef", "name"})
	return isPath && isKind(d, "Cluster")
}
