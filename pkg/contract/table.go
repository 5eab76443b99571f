package contract

import (
	"errors"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ErrNoComponents means that a release has no components YAML, and so no kinds to check against the contract.
var ErrNoComponents = errors.New("the release has no components YAML")

// Table is the rules table of one page, filled in for one kind.
type Table struct {
	// Provider is the provider's label, and Release the release's version.
	Provider string   `json:"provider"`
	Release  string   `json:"release"`
	Resource Resource `json:"resource"`
	// Page is the contract page, e.g. infra-cluster.
	Page string `json:"page"`
	// Kind and Group are those of the kind; both are "" if the provider lacks a mandatory kind.
	Kind  string `json:"kind,omitempty"`
	Group string `json:"group,omitempty"`
	// Version is the version of the kind that the rules are checked on.
	Version string `json:"version,omitempty"`
	// Template is the kind of the template, or "".
	Template string `json:"template,omitempty"`
	// Contract is the contract version that the kind declares, or "".
	Contract string `json:"contract,omitempty"`
	Rows     []Row  `json:"rows"`
}

// Row is one rule with its verdict.
type Row struct {
	Rule
	Verdict
}

// Count returns the number of rows in a state.
func (t *Table) Count(mandatory bool, state State) int {
	n := 0
	for _, r := range t.Rows {
		if r.Mandatory == mandatory && r.State == state {
			n++
		}
	}
	return n
}

// Tables returns the rules tables of the contract, filled in for a release: one for each kind with a role in the
// contract, in the order of the contract pages. The error is ErrNoComponents, or a *manifest.SyntaxError.
func Tables(r *release.Release) ([]Table, error) {
	file, ok := r.Components()
	if !ok {
		return nil, fmt.Errorf("%s: %w: %s is missing", r, ErrNoComponents, r.Provider.ComponentsFile())
	}
	documents, err := manifest.Parse(file.Name, file.Data)
	if err != nil {
		return nil, fmt.Errorf("reading the components of %s: %w", r, err)
	}
	var tables []Table
	for _, i := range Implementations(r.Provider.Type, ReadCRDs(documents)) {
		t := i.table()
		t.Provider, t.Release = r.Provider.Label(), r.Version
		tables = append(tables, t)
	}
	return tables, nil
}

// table fills in the table of a kind.
func (i *Implementation) table() Table {
	t := Table{Resource: i.Resource, Kind: i.Kind(), Contract: i.Contract, Version: i.Version}
	if i.CRD != nil {
		t.Group = i.CRD.Spec.Group
	}
	if i.Template != nil {
		t.Template, t.Group = i.Template.kind(), i.Template.Spec.Group
	}
	for _, r := range Rules() {
		if r.Resource == i.Resource {
			t.Page = r.Page
			t.Rows = append(t.Rows, Row{Rule: r, Verdict: r.Check(i)})
		}
	}
	return t
}
