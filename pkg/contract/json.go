package contract

import (
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The JSON form has names of its own, so that a change of the Go types does not change it.
type (
	jsonTable struct {
		Provider string    `json:"provider"`
		Release  string    `json:"release"`
		Resource Resource  `json:"resource"`
		Page     string    `json:"page"`
		Kind     string    `json:"kind,omitempty"`
		Group    string    `json:"group,omitempty"`
		Version  string    `json:"version,omitempty"`
		Template string    `json:"template,omitempty"`
		Contract string    `json:"contract,omitempty"`
		Rows     []jsonRow `json:"rows"`
	}
	jsonRow struct {
		ID        string        `json:"id"`
		Rule      string        `json:"rule"`
		Mandatory bool          `json:"mandatory"`
		Note      string        `json:"note,omitempty"`
		State     State         `json:"state"`
		Detail    string        `json:"detail,omitempty"`
		Problems  []jsonProblem `json:"problems,omitempty"`
	}
	jsonProblem struct {
		Weight Weight `json:"weight"`
		Reason string `json:"reason"`
		Fix    string `json:"fix"`
		CRD    string `json:"crd,omitempty"`
		Path   string `json:"path,omitempty"`
		Line   int    `json:"line,omitempty"`
	}
)

// writeJSON shows the tables for programs.
func writeJSON(tables []Table, w io.Writer) error {
	all := make([]jsonTable, 0, len(tables))
	for _, t := range tables {
		j := jsonTable{
			Provider: t.Provider, Release: t.Release, Resource: t.Resource, Page: t.Page, Kind: t.Kind,
			Group: t.Group, Version: t.Version, Template: t.Template, Contract: t.Contract, Rows: make([]jsonRow, 0, len(t.Rows)),
		}
		for _, r := range t.Rows {
			j.Rows = append(j.Rows, r.json())
		}
		all = append(all, j)
	}
	return format.JSON(map[string]any{"tables": all}, w)
}

// json returns the row's JSON form. What an optional rule lacks isn't a problem.
func (r Row) json() jsonRow {
	j := jsonRow{ID: r.ID, Rule: r.Name, Mandatory: r.Mandatory, Note: r.Note, State: r.State, Detail: r.Detail}
	if r.State == Missing && !r.Mandatory {
		return j
	}
	for _, p := range r.Problems {
		problem := jsonProblem{Weight: p.Weight, Reason: p.Reason, Fix: r.Advice(p)}
		if p.CRD != nil {
			place := p.CRD.Place(p.Path...)
			problem.CRD, problem.Path, problem.Line = p.CRD.Name, manifest.FieldPath(p.Path...), place.Line
		}
		j.Problems = append(j.Problems, problem)
	}
	return j
}
