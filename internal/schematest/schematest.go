// Package schematest compares the JSON output of commands with its schema in docs, and the schema with its Go types.
package schematest

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	invopop "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

const module = "github.com/clusterctl-release/clusterctl-release"

// Check fails if the schema in docs of that name is not that of the type, or the document does not match it. With
// update, it writes the schema first. Descriptions are the comments of the types.
func Check(t *testing.T, name string, of any, document []byte, update bool) {
	t.Helper()
	root := pinned.Root(t)
	seen := map[string]map[string]string{}
	reflector := invopop.Reflector{Anonymous: true, LookupComment: func(typ reflect.Type, field string) string {
		folder, ours := strings.CutPrefix(typ.PkgPath(), module+"/")
		if !ours {
			return ""
		}
		if seen[folder] == nil {
			seen[folder] = comments(t, filepath.Join(root, folder))
		}
		return seen[folder][path.Join(typ.Name(), field)]
	}}
	schema, err := json.MarshalIndent(reflector.Reflect(of), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	schema = append(schema, '\n')
	file := filepath.Join(root, "docs", name)
	if update {
		if err := os.WriteFile(file, schema, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file) //nolint:gosec // it is in docs
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(schema)); diff != "" {
		t.Errorf("%s is not up to date; -update rewrites it:\n%s", name, diff)
	}
	Validate(t, name, document)
}

// Validate fails if a document does not match a schema of docs.
func Validate(t *testing.T, name string, document []byte) {
	t.Helper()
	compiled, err := jsonschema.NewCompiler().Compile(filepath.Join(pinned.Root(t), "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	if err := compiled.Validate(value); err != nil {
		t.Errorf("the document does not match %s: %v", name, err)
	}
}

// comments returns the comments of a package's types and their fields, by Type and Type/Field.
func comments(t *testing.T, folder string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			declaration, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range declaration.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				found[typ.Name.Name] = textOf(typ.Doc, declaration.Doc)
				structure, ok := typ.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						found[path.Join(typ.Name.Name, name.Name)] = textOf(field.Doc)
					}
				}
			}
			return true
		})
	}
	return found
}

// textOf returns the text of the first comment there is, in one line.
func textOf(groups ...*ast.CommentGroup) string {
	for _, group := range groups {
		if text := group.Text(); text != "" {
			return strings.Join(strings.Fields(text), " ")
		}
	}
	return ""
}
