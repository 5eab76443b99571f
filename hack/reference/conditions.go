package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// conditionsPage returns the conditions and reasons, with the comments of their constants.
func conditionsPage() (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "provider/api/v1alpha1/conditions.go", nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Conditions and reasons\n\n" + generated + "\n[Troubleshooting](../how-to/troubleshooting.md) says what to do about each reason.\n")
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		title, more, _ := strings.Cut(paragraphs(group.Doc.Text()), ".")
		fmt.Fprintf(&b, "\n## %s\n", title)
		if more = strings.TrimSpace(more); more != "" {
			fmt.Fprintf(&b, "\n%s\n", plain(more))
		}
		var rows [][]string
		end := func() {
			if len(rows) > 0 {
				b.WriteString("\n" + table([]string{"reason", "meaning"}, rows))
			}
			rows = nil
		}
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			name := constant.Names[0].Name
			value, err := valueOf(constant.Values[0])
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			meaning := plain(strings.TrimLeft(strings.TrimPrefix(paragraphs(constant.Doc.Text()), name), ": "))
			if strings.HasSuffix(name, "Condition") {
				end()
				fmt.Fprintf(&b, "\n### %s\n\n%s %s\n", value, value, meaning)
				continue
			}
			rows = append(rows, []string{code(value), meaning})
		}
		end()
	}
	return b.String(), nil
}

// valueOf returns the value of a constant. Cluster API's constants have the names of their values.
func valueOf(expression ast.Expr) (string, error) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(expression.Value)
	case *ast.SelectorExpr:
		return strings.TrimSuffix(strings.TrimSuffix(expression.Sel.Name, "Reason"), "Condition"), nil
	}
	return "", fmt.Errorf("its value is neither a text nor another constant")
}
