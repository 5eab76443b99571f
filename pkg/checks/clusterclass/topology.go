package clusterclass

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

var clusterClassTopology = checks.Check{
	ID: "clusterclass-topology", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "Cluster API generates valid objects for Clusters with a ClusterClass of the release",
	Source: "Cluster API book, ClusterClass, Writing a ClusterClass",
	Run: rendered.Templates.EachObject(func(ctx context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, report checks.Report) error {
		class, err := rendered.ExpandableClass(ctx, s, t, o)
		if class == nil || err != nil {
			return err
		}
		return reportTopology(ctx, s, t, o, class, report)
	}),
}

// reportTopology expands a Cluster and validates the resulting objects against the schemas. For generated values, it
// reports only defects that no value changes, which are fields that do not exist. If such values prevent the check, it
// reports a note.
func reportTopology(ctx context.Context, s *checks.Subject, t *rendered.Template, o rendered.Object, class *rendered.Template, report checks.Report) error {
	isGuess := len(class.Guessed) > 0 || o.Raw == nil && len(t.Guessed) > 0 || t.HoldsGuess(o.Published("spec"), o.Object["spec"])

	objects := []unstructured.Unstructured{o.Unstructured}
	for _, part := range class.Objects {
		objects = append(objects, part.Unstructured)
	}
	made, err := topology.Expand(ctx, s.KnownKinds(), objects)
	for _, reason := range []error{topology.ErrNoClass, topology.ErrExternal, topology.ErrVersion} {
		if errors.Is(err, reason) {
			return nil // other checks report it, or it can't be known offline
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err != nil {
		finding := checks.Finding{Place: o.Place("spec", "topology"),
			Message: "Cluster API can't generate the objects of the Cluster: " + err.Error(),
			Fix:     "correct the topology, or the class in " + class.Name}
		if isGuess {
			finding.Severity = checks.Note
			finding.Message = "the objects that Cluster API generates for the Cluster could not be checked: the values that were generated for its variables do not fit the class"
			finding.Fix = "add sampleValues in " + release.ConfigFile
		}
		report(finding)
		return nil
	}
	for _, m := range made {
		problems, err := s.KnownKinds().Validate(ctx, &m)
		if err != nil {
			continue
		}
		for _, p := range problems {
			reportGenerated(s, o, m, p, isGuess, report)
		}
	}
	return ctx.Err()
}

// reportGenerated reports a defect of an object that Cluster API generates.
func reportGenerated(s *checks.Subject, o rendered.Object, m unstructured.Unstructured, p schemas.Problem, isGuess bool, report checks.Report) {
	gvk := m.GroupVersionKind()
	if isGuess && !p.Unknown || p.Missing && rendered.Mutated(s, gvk.GroupKind()) {
		return
	}
	result := "the API server refuses it: " + p.Message
	if p.Unknown {
		result = "its kind has no such field, and the API server drops it"
	}
	report(checks.Finding{Place: o.Place("spec", "topology"),
		Message: fmt.Sprintf("from the Cluster, its class and the patches, Cluster API generates a %s whose %s is wrong: %s", gvk.Kind, manifest.FieldPath(p.Path...), result),
		Fix:     "fix the template, the patch or the variable that the field comes from"})
}
