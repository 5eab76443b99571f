package contract

import (
	"bytes"
	"io"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// writeJSON writes the tables as JSON.
func writeJSON(tables []Table, w io.Writer) error {
	return format.JSON(map[string]any{"tables": append([]Table{}, tables...)}, w)
}

// MarshalJSON writes the place of the problem as a field path.
func (p Problem) MarshalJSON() ([]byte, error) {
	shown := struct {
		Weight Weight `json:"weight"`
		Reason string `json:"reason"`
		Fix    string `json:"fix"`
		CRD    string `json:"crd,omitempty"`
		Path   string `json:"path,omitempty"`
		Line   int    `json:"line,omitempty"`
	}{Weight: p.Weight, Reason: p.Reason, Fix: p.Fix}
	if p.CRD != nil {
		shown.CRD, shown.Path, shown.Line = p.CRD.Name, manifest.FieldPath(p.Path...), p.CRD.Place(p.Path...).Line
	}
	var b bytes.Buffer // json.Marshal would escape < and & for HTML
	err := format.JSON(shown, &b)
	return b.Bytes(), err
}
