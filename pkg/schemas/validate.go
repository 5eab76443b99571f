package schemas

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Problem is a defect of a field of an object.
type Problem struct {
	// Path are the steps to the field: names, and numbers for the items of lists.
	Path []any
	// Unknown means that the schema does not have the field: an API server silently drops it. With any other problem it
	// refuses the object.
	Unknown bool
	// Missing means that a required field is missing.
	Missing bool
	// Rule means that the object breaks a CEL rule of the CRD, which may be about fields below the path.
	Rule bool
	// Message is the API server's, without the path.
	Message string

	// Below is the path of an unknown field in a value of the wrong type; or nil.
	Below []any
	// wrongType means that the value has another type than the schema.
	wrongType bool
}

// version is a version of a kind.
type version struct {
	name   string
	served bool
	// compile reads and compiles the schema at the first call.
	compile func() (*compiled, error)
}

// compiled is a schema in the form that an API server uses.
type compiled struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	// rules compiles the CEL rules at the first call, which is the slowest step: only objects that are valid otherwise
	// need them. It returns nil without rules.
	rules func() *cel.Validator
}

// newVersion returns a version whose schema a function reads.
func newVersion(name string, served bool, read func() (*apiextensionsv1.JSONSchemaProps, error)) version {
	return version{name: name, served: served, compile: sync.OnceValues(func() (*compiled, error) {
		props, err := read()
		if err != nil {
			return nil, err
		}
		internal, structural, err := structuralOf(props)
		if err != nil {
			return nil, err
		}
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			return nil, fmt.Errorf("compiling the schema: %w", err)
		}
		rules := sync.OnceValue(func() *cel.Validator { return cel.NewValidator(structural, true, celconfig.PerCallLimit) })
		return &compiled{structural: structural, validator: validator, rules: rules}, nil
	})}
}

// structuralOf returns a schema in the types of an API server.
func structuralOf(props *apiextensionsv1.JSONSchemaProps) (*apiextensions.JSONSchemaProps, *structuralschema.Structural, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		return nil, nil, fmt.Errorf("converting the schema: %w", err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, nil, fmt.Errorf("the schema is not structural: %w", err)
	}
	return internal, structural, nil
}

// schemaOf returns the compiled schema of a kind, or nil if the kind is not known. The error is a *VersionError, or that
// of an unusable schema.
func (k *Kinds) schemaOf(gvk schema.GroupVersionKind) (*compiled, error) {
	kind, ok := k.Kind(gvk.GroupKind())
	if !ok {
		return nil, nil
	}
	for _, v := range kind.versions {
		if v.served && v.name == gvk.Version {
			compiled, err := v.compile()
			if err != nil {
				return nil, fmt.Errorf("the schema of %s: %w", gvk, err)
			}
			return compiled, nil
		}
	}
	return nil, &VersionError{Kind: kind, Version: gvk.Version}
}

// KeepsUnnamed reports whether a schema keeps unknown fields.
func KeepsUnnamed(props *apiextensionsv1.JSONSchemaProps) bool {
	return props.XPreserveUnknownFields != nil && *props.XPreserveUnknownFields
}

// AcceptsEmpty reports whether the CEL rules of a schema accept an object with only defaults. It also returns false for
// a schema without rules, or an unusable one.
func AcceptsEmpty(ctx context.Context, props *apiextensionsv1.JSONSchemaProps) bool {
	_, structural, err := structuralOf(props)
	if err != nil {
		return false
	}
	rules := cel.NewValidator(structural, false, celconfig.PerCallLimit)
	if rules == nil {
		return false
	}
	object := map[string]any{}
	defaulting.Default(object, structural)
	broken, _ := rules.Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	return len(broken) == 0
}

// Validate validates a new object against the schema of its kind as an API server does: it drops unknown fields and
// nulls, sets defaults, and then checks types, limits, keys of lists and, if all these are right, CEL rules. The object
// is not changed. Objects of unknown kinds are valid. The error is that of the context, of a version that is not
// served, or of an unusable schema.
//
// Source: Kubernetes documentation, Custom Resources, "Extend the Kubernetes API with CustomResourceDefinitions".
func (k *Kinds) Validate(ctx context.Context, object *unstructured.Unstructured) ([]Problem, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	schema, err := k.schemaOf(object.GroupVersionKind())
	if schema == nil || err != nil {
		return nil, err
	}
	content, err := decoded(object)
	if err != nil {
		return nil, err
	}
	problems := prune(object.Object, content, schema.structural)
	if err := objectmeta.Coerce(nil, content, schema.structural, true, false); err != nil {
		return append(problems, newProblem(object.Object, err)), nil
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(content, schema.structural)
	defaulting.Default(content, schema.structural)
	refused := validation.ValidateCustomResource(nil, content, schema.validator)
	refused = append(refused, listtype.ValidateListSetsAndMaps(nil, schema.structural, content)...)
	if len(refused) == 0 {
		if rules := schema.rules(); rules != nil {
			broken, _ := rules.Validate(ctx, nil, schema.structural, content, nil, celconfig.RuntimeCELCostBudget)
			for _, err := range broken {
				problem := newProblem(object.Object, err)
				problem.Rule = true
				problems = append(problems, problem)
			}
		}
	}
	for _, err := range refused {
		problems = append(problems, newProblem(object.Object, err))
	}
	problems = withoutEffects(problems)
	// The validators iterate over maps in random order.
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(fmt.Sprint(a.Path...), fmt.Sprint(b.Path...)), strings.Compare(a.Message, b.Message))
	})
	return problems, nil
}

// Default sets the defaults of its kind's schema in an object and drops unknown fields, as an API server does that
// stores it. Objects of unknown kinds stay as they are. The error is that of Validate.
func (k *Kinds) Default(object *unstructured.Unstructured) error {
	schema, err := k.schemaOf(object.GroupVersionKind())
	if schema == nil || err != nil {
		return err
	}
	if object.Object, err = decoded(object); err != nil {
		return err
	}
	pruning.Prune(object.Object, schema.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, schema.structural)
	defaulting.Default(object.Object, schema.structural)
	return nil
}

// decoded returns a copy of an object's content with the types that an API server decodes: integers are int64.
// clusterctl reads all numbers as float64, which CEL rules do not treat as integers.
func decoded(object *unstructured.Unstructured) (map[string]any, error) {
	data, err := json.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("decoding %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return content, nil
}

// VersionError means that a kind is not served in a version.
type VersionError struct {
	Kind    *Kind
	Version string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s is not served in version %s, but in %s", e.Kind.Kind, e.Version, strings.Join(e.Kind.Served(), ", "))
}

// prune drops the fields of content that the schema does not have, and returns them.
func prune(original map[string]any, content map[string]any, schema *structuralschema.Structural) []Problem {
	var problems []Problem
	for _, path := range pruning.PruneWithOptions(content, schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		problems = append(problems, Problem{Path: Steps(original, path), Unknown: true, Message: "unknown field"})
	}
	return problems
}

// withoutEffects removes problems that follow from a wrong type elsewhere: fields that are unknown because their parent
// has another type, and the problem of the whole object for a number that isn't an integer.
func withoutEffects(problems []Problem) []Problem {
	cause := func(p Problem) int {
		return slices.IndexFunc(problems, func(other Problem) bool {
			if !other.wrongType || len(other.Path) == 0 {
				return false
			}
			isAbove := len(other.Path) < len(p.Path) && slices.Equal(other.Path, p.Path[:len(other.Path)])
			return p.Unknown && isAbove || len(p.Path) == 0 && !p.Rule
		})
	}
	for _, p := range problems {
		if at := cause(p); at >= 0 && p.Unknown && problems[at].Below == nil {
			problems[at].Below = p.Path
		}
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return cause(p) >= 0 })
}

// newProblem converts the API server's error for a field to a problem.
func newProblem(object map[string]any, err *field.Error) Problem {
	return Problem{
		Path: Steps(object, err.Field), Missing: err.Type == field.ErrorTypeRequired,
		wrongType: err.Type == field.ErrorTypeTypeInvalid, Message: err.ErrorBody(),
	}
}
