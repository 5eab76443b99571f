// Command selectors reads PromQL expressions, as a list of strings in JSON, and prints as JSON the metrics that each
// selects and the labels that it names. It uses Prometheus' own parser.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Expression has the metrics and labels of one expression.
type Expression struct {
	// Metrics has, for each metric, the labels that its selectors name.
	Metrics map[string][]string `json:"metrics"`
	// Grouping has the labels of by, on and similar clauses.
	Grouping []string `json:"grouping"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "selectors:", err)
		os.Exit(1)
	}
}

func run() error {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		return err
	}
	expressions := make([]Expression, len(texts))
	for i, text := range texts {
		parsed, err := parser.ParseExpr(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		expressions[i] = read(parsed)
	}
	return json.NewEncoder(os.Stdout).Encode(expressions)
}

func read(parsed parser.Expr) Expression {
	result := Expression{Metrics: map[string][]string{}}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			name := ""
			var used []string
			for _, matcher := range node.LabelMatchers {
				if matcher.Name == labels.MetricName {
					name = matcher.Value
				} else {
					used = append(used, matcher.Name)
				}
			}
			result.Metrics[name] = append(result.Metrics[name], used...)
		case *parser.AggregateExpr:
			result.Grouping = append(result.Grouping, node.Grouping...)
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				result.Grouping = append(result.Grouping, node.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	return result
}
