package diff_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
)

// TestSchemas checks the changes that Schemas returns, written "<field> <kind>: <before> -> <after> <narrows>",
// where narrows is 0 for no, 1 for perhaps and 2 for certainly.
func TestSchemas(t *testing.T) {
	for _, tc := range []struct {
		name          string
		before, after string
		want          []string
	}{
		{"nothing", "{type: string, description: a}", "{type: string, description: b}", nil},
		{"a type", "{type: integer}", "{type: string}", []string{" type: integer -> string 2"}},
		{"wider types", "{properties: {a: {type: integer}, b: {type: string}, c: {type: integer}}}",
			"{properties: {a: {type: number}, b: {x-kubernetes-int-or-string: true}, c: {}}}",
			[]string{"a type: integer -> number 0", "b type: string -> integer or string 0", "c type: integer -> any 0"}},
		{"enums", "{properties: {a: {enum: [x, z]}, b: {enum: [x]}, c: {}, d: {enum: [x]}}}", "{properties: {a: {enum: [z]}, b: {enum: [x, z]}, c: {enum: [x]}, d: {}}}",
			[]string{`a enum: "x", "z" -> "z" 2`, `b enum: "x" -> "x", "z" 0`, `c enum:  -> "x" 2`, `d enum: "x" ->  0`}},
		{"limits", "{properties: {a: {maximum: 5}, b: {minLength: 2}, c: {maxItems: 3}, d: {}, e: {minimum: 1000000}}}",
			"{properties: {a: {maximum: 4.5}, b: {minLength: 1}, c: {}, d: {minItems: 0}, e: {minimum: 0}}}",
			[]string{"a limit: maximum 5 -> maximum 4.5 2", "b limit: minLength 2 -> minLength 1 0", "c limit: maxItems 3 ->  0", "d limit:  -> minItems 0 0", "e limit: minimum 1000000 -> minimum 0 0"}},
		{"exclusive", "{maximum: 3}", "{maximum: 3, exclusiveMaximum: true}", []string{" limit: exclusiveMaximum false -> exclusiveMaximum true 2"}},
		{"texts", "{properties: {a: {pattern: x}, b: {}, c: {format: int32}, d: {nullable: true}}}", "{properties: {a: {}, b: {pattern: z}, c: {format: int64}, d: {}}}",
			[]string{"a pattern: x ->  0", "b pattern:  -> z 1", "c format: int32 -> int64 0", "d nullable: nullable true -> nullable false 2"}},
		{"defaults", "{properties: {a: {default: 1}, b: {}}}", "{properties: {a: {}, b: {default: {x: <}}}}",
			[]string{"a default: 1 ->  0", `b default:  -> {"x":"<"} 0`}},
		{"required", "{required: [a, d, e], properties: {a: {}, b: {}, c: {}, d: {}, e: {default: 1}}}", "{required: [b, c, d, e], properties: {a: {}, b: {}, c: {default: 1}, d: {}, e: {}}}",
			[]string{"a optional: required -> optional 0", "b required: optional -> required 2", "c default:  -> 1 0", "e required: optional -> required 2", "e default: 1 ->  0"}},
		{"fields", "{properties: {a: {type: string}, l: {items: {properties: {x: {}}}}}}", "{required: [m], properties: {b: {type: object, properties: {c: {}}}, m: {type: array, items: {type: string}}, l: {items: {properties: {z: {}}}}}}",
			[]string{"a removed: string ->  0", "b added:  -> object 0", "l[].x removed: any ->  0", "l[].z added:  -> any 0", "m added:  -> list of string, required 2"}},
		{"maps", "{properties: {a: {additionalProperties: {type: string}}, b: {additionalProperties: {maxLength: 2}}}}", "{properties: {a: {}, b: {additionalProperties: {maxLength: 1}}}}",
			[]string{"a unknown fields: keys of a map -> dropped 0", "b[*] limit: maxLength 2 -> maxLength 1 2"}},
		{"unknown fields", "{x-kubernetes-preserve-unknown-fields: true}", "{x-kubernetes-preserve-unknown-fields: false}", []string{" unknown fields: kept -> dropped 0"}},
		{"rules", "{x-kubernetes-validations: [{rule: a, message: m}, {rule: b}]}", `{x-kubernetes-validations: [{rule: " a ", message: n}, {rule: c}]}`,
			[]string{" rule:  -> c 1", " rule: b ->  0"}},
		{"lists", "{properties: {a: {}, b: {x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [m]}, c: {}}}", "{properties: {a: {x-kubernetes-list-type: set}, b: {}, c: {x-kubernetes-list-type: atomic}}}",
			[]string{"a list type: atomic -> set 1", "b list type: map by m -> atomic 0"}},
		{"combinations", "{}", "{not: {type: string}}", []string{` combination:  -> {"not":{"type":"string"}} 1`}},
		{"Kubernetes' own", "{properties: {apiVersion: {}, spec: {properties: {kind: {}}}}}", "{properties: {spec: {}}}", []string{"spec.kind removed: any ->  0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, after := &apiextensionsv1.JSONSchemaProps{}, &apiextensionsv1.JSONSchemaProps{}
			if err := yaml.UnmarshalStrict([]byte(tc.before), before); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(tc.after), after); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range diff.Schemas(before, after) {
				got = append(got, fmt.Sprintf("%s %s: %s -> %s %d", c.Field, c.Kind, c.Before, c.After, c.Narrows))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if same := diff.Schemas(after, after); len(same) > 0 {
				t.Errorf("a schema differs from itself: %v", same)
			}
		})
	}
}

// TestSchemaPaths checks that At is the path of the field in the newer schema, or of a removed field's parent.
func TestSchemaPaths(t *testing.T) {
	before, after := &apiextensionsv1.JSONSchemaProps{}, &apiextensionsv1.JSONSchemaProps{}
	for text, schema := range map[string]*apiextensionsv1.JSONSchemaProps{
		"{properties: {l: {items: {additionalProperties: {properties: {a: {type: string}, gone: {}}}}}}}": before,
		"{properties: {l: {items: {additionalProperties: {properties: {a: {type: integer}}}}}}}":          after,
	} {
		if err := yaml.UnmarshalStrict([]byte(text), schema); err != nil {
			t.Fatal(err)
		}
	}
	changes := diff.Schemas(before, after)
	parent := []any{"properties", "l", "items", "additionalProperties"}
	for i, want := range [][]any{slices.Concat(parent, []any{"properties", "a"}), parent} {
		if diff := cmp.Diff(want, changes[i].At); diff != "" {
			t.Errorf("%s: %s", changes[i].Field, diff)
		}
	}
	if got, want := changes[0].Field, "l[][*].a"; got != want {
		t.Errorf("Field = %q, want %q", got, want)
	}
}

func TestHoldsForOld(t *testing.T) {
	for _, tc := range []struct {
		rule string
		want bool
	}{
		{"has(self.c) == has(self.d)", true},
		{"!has(self.c) || self.c > 3", true},
		{"self.e == 'x'", true},  // by its default
		{"self.e == 'y'", false}, // by its default
		{"has(self.c)", false},
		{"!has(self.c) || has(self.a)", false}, // it reads an old field
		{"self == oldSelf", false},
		{"has(self.c) == has(self.unknown)", false},
		{"size(self) < 3", false},
		{"1 + ", false},
		{"true", false},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			before, after := &apiextensionsv1.JSONSchemaProps{}, &apiextensionsv1.JSONSchemaProps{}
			if err := yaml.Unmarshal([]byte("{type: object, properties: {a: {type: string}}}"), before); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte("{type: object, properties: {a: {type: string}, c: {type: integer}, d: {type: integer}, e: {type: string, default: x}}}"), after); err != nil {
				t.Fatal(err)
			}
			after.XValidations = apiextensionsv1.ValidationRules{{Rule: tc.rule}}
			for _, c := range diff.Schemas(before, after) {
				if c.Kind == diff.FieldRule && c.HoldsForOld(t.Context()) != tc.want {
					t.Errorf("HoldsForOld of rule %q = %v, want %v", tc.rule, !tc.want, tc.want)
				}
			}
		})
	}
}
