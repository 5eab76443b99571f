package ownership

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

const (
	sourceChain        = "clusterctl provider contract, OwnerReferences chain"
	sourceMovedObjects = "clusterctl provider contract, Additional notes, Move"
)

// The checks of ownership find in releases what their templates become, with the owners that
// controllers set; and in dumps and clusters what is there.
var (
	orphan = checks.Check{
		ID: "orphan", Group: checks.Ownership, Severity: checks.Warning, Source: sourceChain,
		Title: "Something links every object to a Cluster, a ClusterResourceSet or a move hierarchy",
		Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
			risks, err := templateRisks(ctx, s)
			for _, r := range risks {
				if r.Rule == "orphan" && r.isAlone(s) {
					report(r.finding())
				}
			}
			return err
		},
	}
	danglingOwner = checks.Check{
		ID: "dangling-owner", Group: checks.Ownership, Severity: checks.Error, Source: sourceChain,
		Title: "`clusterctl move` reads the owners of what it moves",
		Run: rendered.All.EachObject(func(_ context.Context, _ *checks.Subject, _ *rendered.Template, o rendered.Object, report checks.Report) error {
			if len(o.GetOwnerReferences()) > 0 {
				report(checks.Finding{Place: o.Place("metadata", "ownerReferences"),
					Message: "an owner reference needs the UID of an object in the cluster, which no template knows: Kubernetes takes the owner for missing and deletes the object",
					Fix:     "take it out: controllers set owner references, of what Cluster API's kinds refer to by themselves"})
			}
			return nil
		}),
	}
	ownerCycle = checks.Check{
		ID: "owner-cycle", Group: checks.Ownership, Severity: checks.Error, Source: sourceChain,
		Title: "Owners do not go round in a circle",
		Run:   reportRisks("owner-cycle"),
	}
	ownerScope = checks.Check{
		ID: "owner-scope", Group: checks.Ownership, Severity: checks.Error, Source: "Kubernetes, Owners and Dependents, Owner references in object specifications",
		Title: "Owners are in the namespace of what they own, or in none",
		Run:   reportRisks("owner-scope"),
	}
	ownerVersion = checks.Check{
		ID: "owner-version", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Owner references name versions that are served",
		Run:   reportRisks("owner-version"),
	}
	twoControllers = checks.Check{
		ID: "two-controllers", Group: checks.Ownership, Severity: checks.Error, Source: "Kubernetes, Owners and Dependents",
		Title: "One owner at most is the controller",
		Run:   reportRisks("two-controllers"),
	}
	identityMove = checks.Check{
		ID: "identity-move", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Kinds without a namespace that others refer to have a label to move them",
		Run:   reportIdentities,
	}
	secretUnlinked = checks.Check{
		ID: "secret-unlinked", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Secrets that moved objects name are moved (of templates, template-secret-owner tells)",
	}
	classInOtherNamespace = checks.Check{
		ID: "class-in-other-namespace", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "ClusterClasses are in the namespaces of their Clusters",
		Run:   reportRisks("class-in-other-namespace"),
	}
	moveBlocked = checks.Check{
		ID: "move-blocked", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "No annotation blocks the move",
		Run:   reportRisks("move-blocked"),
	}
	notPaused = checks.Check{
		ID: "not-paused", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Clusters and ClusterClasses are not paused",
		Run:   reportRisks("not-paused"),
	}
)

// RunWorld checks a namespace of a dump or of a cluster. The findings are in the order of objects, which have
// to be read in whole.
func RunWorld(ctx context.Context, world *move.World, namespace string) (*checks.Result, error) {
	result := &checks.Result{Source: fmt.Sprintf("the namespace %s of %s", namespace, world.Source)}
	graph := move.Discover(ctx, world, namespace)
	result.Graphs = []checks.TemplateGraph{{Graph: graph}}
	for _, risk := range graph.Risks() {
		check, err := Checks.Find(risk.Rule)
		if err != nil {
			return nil, err
		}
		place := risk.Object.Place
		place.Object, place.Path = risk.Object.Object, manifest.FieldPath(risk.Path...)
		result.Findings = append(result.Findings, checks.Finding{
			Place: place, ID: check.ID, Severity: check.Severity, Source: check.Source, Message: risk.Message, Fix: risk.Fix,
		})
	}
	return result, ctx.Err()
}

// templateRisk is a risk of an object of a template, or of one that comes of the template's Cluster.
type templateRisk struct {
	move.Risk
	template *rendered.Template
	// of is the object in the file; index is its place among the template's objects, or -1.
	of    rendered.Object
	index int
}

// finding returns the risk as a finding.
func (r templateRisk) finding() checks.Finding {
	return checks.Finding{Place: r.of.Place(r.Path...), Message: r.Message, Fix: r.Fix}
}

// isAlone says whether no object of the template names an object: who names it may own it. What only
// serves others has a check of its own.
func (r templateRisk) isAlone(s *checks.Subject) bool {
	return r.index >= 0 && !r.template.MayNameMore() && !r.template.IsNamed(r.index) && !rendered.OnlyServes(s, r.of)
}

// reportRisks returns a check that reports the risks of a rule in templates.
func reportRisks(rule string) checks.RunFunc {
	return func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		risks, err := templateRisks(ctx, s)
		for _, r := range risks {
			if r.Rule == rule {
				report(r.finding())
			}
		}
		return err
	}
}

// templateRisks returns what is risky about moving what the templates become.
var templateRisks = checks.OnceValues(func(ctx context.Context, s *checks.Subject) (risks []templateRisk, err error) {
	all, err := rendered.Templates.Of(ctx, s)
	for _, t := range all {
		found, err := risksOf(ctx, s, t)
		if err != nil {
			return nil, err
		}
		risks = append(risks, found...)
	}
	return risks, err
})

// risksOf returns the risks of a template with the ClusterClasses that it names.
func risksOf(ctx context.Context, s *checks.Subject, t *rendered.Template) ([]templateRisk, error) {
	files := []*rendered.Template{t}
	for _, o := range t.Objects {
		class, err := rendered.ExpandableClass(ctx, s, t, o)
		if err != nil {
			return nil, err
		}
		if class != nil && !slices.Contains(files, class) {
			files = append(files, class)
		}
	}
	var objects []unstructured.Unstructured
	for _, file := range files {
		for _, o := range file.Objects {
			copied := *o.DeepCopy()
			copied.SetNamespace("default") // clusterctl puts all into the namespace of its user
			objects = append(objects, copied)
		}
	}
	graph := move.Discover(ctx, move.OfTemplate(ctx, t.Name, s.KnownCRDs(), objects), "default")
	s.KeepGraph(t.Name, graph)
	var found []templateRisk
	for _, risk := range graph.Risks() {
		if r, ok := locate(files, risk); ok {
			found = append(found, r)
		}
	}
	return found, ctx.Err()
}

// locate finds the object of a risk in its file; what comes of a topology is in none.
func locate(files []*rendered.Template, risk move.Risk) (templateRisk, bool) {
	for i, file := range files {
		at := slices.IndexFunc(file.Objects, func(o rendered.Object) bool {
			return o.GetName() == risk.Object.Name && o.GroupVersionKind().GroupKind() == risk.Object.GroupKind()
		})
		if at < 0 {
			continue
		}
		if i > 0 && risk.Rule == "orphan" {
			return templateRisk{}, false // of ClusterClasses, other checks tell
		}
		return templateRisk{Risk: risk, template: file, of: file.Objects[at], index: at}, true
	}
	return templateRisk{}, false
}
