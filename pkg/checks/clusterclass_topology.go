package checks

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

var clusterClassTopology = Check{
	ID: "clusterclass-topology", Group: ClusterClass, Severity: Warning,
	Title:  "Cluster API makes valid objects of the Clusters that name a ClusterClass of the release",
	Source: "Cluster API book, ClusterClass, Writing a ClusterClass",
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			for _, o := range t.objects {
				if class, ok := s.expandableClass(t, o); ok {
					s.reportTopology(t, o, class, report)
				}
			}
		}
	},
}

// expandableClass returns the file of a Cluster's class, or false where there is nothing to expand:
// no topology, no class in the release, or objects that an API server refuses before.
func (s *Subject) expandableClass(t *template, o object) (*template, bool) {
	name, _, ok := className(o.Unstructured)
	if !ok || !s.isValid(t, o) {
		return nil, false
	}
	i := slices.IndexFunc(s.clusterClasses(), func(c *template) bool { return c.Name == "clusterclass-"+name+".yaml" })
	if i < 0 {
		return nil, false
	}
	class := s.clusterClasses()[i]
	for _, part := range class.objects {
		if !s.isValid(class, part) {
			return nil, false
		}
	}
	return class, len(class.objects) > 0
}

// reportTopology expands a Cluster and checks what comes of it against the schemas. Where values were made
// up, it reports only what no value changes: fields that do not exist. Where such values keep it from
// looking, a note says so.
func (s *Subject) reportTopology(t *template, o object, class *template, report Report) {
	spec, _ := manifest.Child(o.Object, "spec")
	var raw any
	if o.raw != nil {
		raw, _ = manifest.Child(o.raw.Object.Object, "spec")
	}
	isGuess := len(class.guessed) > 0 || o.raw == nil && len(t.guessed) > 0 || t.holdsGuess(raw, spec)

	objects := []unstructured.Unstructured{o.Unstructured}
	for _, part := range class.objects {
		objects = append(objects, part.Unstructured)
	}
	made, err := topology.Expand(s.Context(), s.knownKinds(), objects)
	for _, reason := range []error{topology.ErrNoClass, topology.ErrExternal, topology.ErrVersion} {
		if errors.Is(err, reason) {
			return // other checks say so, or nobody can know offline
		}
	}
	if err != nil {
		finding := Finding{Place: o.place("spec", "topology"),
			Message: "Cluster API can't make the objects of the Cluster: " + err.Error(),
			Fix:     "correct the topology, or the class in " + class.Name}
		if isGuess {
			finding.Severity = Note
			finding.Message = "what Cluster API makes of the Cluster could not be checked: the values that were made up for its variables do not fit the class"
			finding.Fix = "give sampleValues in " + release.ConfigFile
		}
		report(finding)
		return
	}
	for _, m := range made {
		problems, err := s.knownKinds().Validate(s.Context(), &m)
		if err != nil {
			continue
		}
		for _, p := range problems {
			s.reportMade(o, m, p, isGuess, report)
		}
	}
}

// reportMade says what is wrong with an object that Cluster API makes.
func (s *Subject) reportMade(o object, m unstructured.Unstructured, p schemas.Problem, isGuess bool, report Report) {
	gvk := m.GroupVersionKind()
	if isGuess && !p.Unknown || p.Missing && s.mutated(gvk.GroupKind()) {
		return
	}
	result := "the API server refuses it: " + p.Message
	if p.Unknown {
		result = "its kind has no such field, and the API server drops it"
	}
	report(Finding{Place: o.place("spec", "topology"),
		Message: fmt.Sprintf("of the Cluster, its class and the patches comes a %s whose %s is wrong: %s", gvk.Kind, manifest.FieldPath(p.Path...), result),
		Fix:     "fix the template, the patch or the variable that the field comes from"})
}
