package checks

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

const sourceChain = "clusterctl provider contract, OwnerReferences chain"

// The checks of ownership find in releases what their templates become, with the owners that
// controllers set; and in dumps and clusters what is there.
var (
	orphan = Check{
		ID: "orphan", Group: Ownership, Severity: Warning, Source: sourceChain,
		Title: "Something links every object to a Cluster, a ClusterResourceSet or a move hierarchy",
		Run: func(s *Subject, report Report) {
			for _, r := range s.templateRisks() {
				if r.Rule == "orphan" && r.isAlone(s) {
					report(r.finding())
				}
			}
		},
	}
	danglingOwner = Check{
		ID: "dangling-owner", Group: Ownership, Severity: Error, Source: sourceChain,
		Title: "`clusterctl move` reads the owners of what it moves",
		Run:   reportTemplateOwners,
	}
	ownerCycle = Check{
		ID: "owner-cycle", Group: Ownership, Severity: Error, Source: sourceChain,
		Title: "Owners do not go round in a circle",
		Run:   reportRisks("owner-cycle"),
	}
	ownerScope = Check{
		ID: "owner-scope", Group: Ownership, Severity: Error, Source: "Kubernetes, Owners and Dependents, Owner references in object specifications",
		Title: "Owners are in the namespace of what they own, or in none",
		Run:   reportRisks("owner-scope"),
	}
	ownerVersion = Check{
		ID: "owner-version", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "Owner references name versions that are served",
		Run:   reportRisks("owner-version"),
	}
	twoControllers = Check{
		ID: "two-controllers", Group: Ownership, Severity: Error, Source: "Kubernetes, Owners and Dependents",
		Title: "One owner at most is the controller",
		Run:   reportRisks("two-controllers"),
	}
	identityMove = Check{
		ID: "identity-move", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "Kinds without a namespace that others refer to have a label to move them",
		Run:   reportIdentities,
	}
	secretUnlinked = Check{
		ID: "secret-unlinked", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "Secrets that moved objects name are moved (of templates, template-secret-owner tells)",
	}
	classInOtherNamespace = Check{
		ID: "class-in-other-namespace", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "ClusterClasses are in the namespaces of their Clusters",
		Run:   reportRisks("class-in-other-namespace"),
	}
	moveBlocked = Check{
		ID: "move-blocked", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "No annotation blocks the move",
		Run:   reportRisks("move-blocked"),
	}
	notPaused = Check{
		ID: "not-paused", Group: Ownership, Severity: Warning, Source: sourceMove,
		Title: "Clusters and ClusterClasses are not paused",
		Run:   reportRisks("not-paused"),
	}
)

// RunWorld holds a namespace of a dump or of a cluster against the checks of ownership, and returns what
// they found in the order of objects. The objects have to be read in whole.
func RunWorld(ctx context.Context, world *move.World, namespace string) (*Result, error) {
	result := &Result{Source: fmt.Sprintf("the namespace %s of %s", namespace, world.Source)}
	graph := move.Discover(ctx, world, namespace)
	result.Graphs = []TemplateGraph{{Graph: graph}}
	for _, risk := range graph.Risks() {
		check, err := Find(risk.Rule)
		if err != nil {
			return nil, err
		}
		place := risk.Object.Place
		place.Object, place.Path = risk.Object.Object, manifest.FieldPath(risk.Path...)
		result.Findings = append(result.Findings, Finding{
			Place: place, ID: check.ID, Severity: check.Severity, Source: check.Source, Message: risk.Message, Fix: risk.Fix,
		})
	}
	return result, ctx.Err()
}

// templateRisk is a risk of an object of a template, or of one that comes of the template's Cluster.
type templateRisk struct {
	move.Risk
	template *template
	// of is the object in the file; index is its place among the template's objects, or -1.
	of    object
	index int
}

// finding returns the risk as a finding.
func (r templateRisk) finding() Finding {
	return Finding{Place: r.of.place(r.Path...), Message: r.Message, Fix: r.Fix}
}

// isAlone says whether no object of the template names an object: who names it may own it. What only
// serves others has a check of its own.
func (r templateRisk) isAlone(s *Subject) bool {
	return r.index >= 0 && !r.template.mayNameMore() && !r.template.isNamed(r.index) && !s.onlyServes(r.of)
}

// reportRisks returns a check that reports the risks of a rule in templates.
func reportRisks(rule string) func(*Subject, Report) {
	return func(s *Subject, report Report) {
		for _, r := range s.templateRisks() {
			if r.Rule == rule {
				report(r.finding())
			}
		}
	}
}

// reportTemplateOwners reports owner references in templates: no file knows UIDs of a cluster to come.
func reportTemplateOwners(s *Subject, report Report) {
	for _, t := range append(s.templates(), s.clusterClasses()...) {
		for _, o := range t.objects {
			if len(o.GetOwnerReferences()) > 0 {
				report(Finding{Place: o.place("metadata", "ownerReferences"),
					Message: "an owner reference needs the UID of an object in the cluster, which no template knows: Kubernetes takes the owner for missing and deletes the object",
					Fix:     "take it out: controllers set owner references, of what Cluster API's kinds refer to by themselves"})
			}
		}
	}
}

// templateRisks returns what is risky about moving what the templates become.
func (s *Subject) templateRisks() []templateRisk {
	return s.onceRisks.get(func() (risks []templateRisk) {
		for _, t := range s.templates() {
			if s.Context().Err() != nil {
				return risks
			}
			risks = append(risks, s.risksOf(t)...)
		}
		return risks
	})
}

// risksOf returns the risks of a template with the ClusterClasses that it names.
func (s *Subject) risksOf(t *template) []templateRisk {
	files := []*template{t}
	for _, o := range t.objects {
		if class, ok := s.expandableClass(t, o); ok && !slices.Contains(files, class) {
			files = append(files, class)
		}
	}
	var objects []unstructured.Unstructured
	for _, file := range files {
		for _, o := range file.objects {
			copied := *o.DeepCopy()
			copied.SetNamespace("default") // clusterctl puts all into the namespace of its user
			objects = append(objects, copied)
		}
	}
	world := move.OfTemplate(s.Context(), t.Name, s.knownCRDs(), objects)
	graph := move.Discover(s.Context(), world, "default")
	if s.WantsGraphs {
		s.graphs = append(s.graphs, TemplateGraph{Template: t.Name, Graph: graph})
	}
	var found []templateRisk
	for _, risk := range graph.Risks() {
		if r, ok := locate(files, risk); ok {
			found = append(found, r)
		}
	}
	return found
}

// locate finds the object of a risk in its file; what comes of a topology is in none.
func locate(files []*template, risk move.Risk) (templateRisk, bool) {
	for i, file := range files {
		at := slices.IndexFunc(file.objects, func(o object) bool {
			return o.GetName() == risk.Object.Name && o.GroupVersionKind().GroupKind() == risk.Object.GroupKind()
		})
		if at < 0 {
			continue
		}
		if i > 0 && risk.Rule == "orphan" {
			return templateRisk{}, false // of ClusterClasses, other checks tell
		}
		return templateRisk{Risk: risk, template: file, of: file.objects[at], index: at}, true
	}
	return templateRisk{}, false
}
