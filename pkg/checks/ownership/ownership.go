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

// The checks of ownership work on the objects that the templates of a release result in, with the owners that
// controllers set, and on the objects of dumps and clusters.
var (
	orphan = checks.Check{
		ID: "orphan", Group: checks.Ownership, Severity: checks.Warning, Source: sourceChain,
		Title: "Every object is linked to a Cluster, a ClusterResourceSet or a move hierarchy",
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
		Title: "`clusterctl move` reads the owners of moved objects",
		Run: rendered.All.EachObject(func(_ context.Context, _ *checks.Subject, _ *rendered.Template, o rendered.Object, report checks.Report) error {
			if len(o.GetOwnerReferences()) > 0 {
				report(checks.Finding{Place: o.Place("metadata", "ownerReferences"),
					Message: "an owner reference needs the UID of an object in the cluster, which a template can't know: Kubernetes treats the owner as missing and deletes the object",
					Fix:     "remove it: controllers set owner references, and Cluster API's controllers set those of the objects that its kinds refer to"})
			}
			return nil
		}),
	}
	ownerCycle = checks.Check{
		ID: "owner-cycle", Group: checks.Ownership, Severity: checks.Error, Source: sourceChain,
		Title: "Owner references have no cycle",
		Run:   reportRisks("owner-cycle"),
	}
	ownerScope = checks.Check{
		ID: "owner-scope", Group: checks.Ownership, Severity: checks.Error, Source: "Kubernetes, Owners and Dependents, Owner references in object specifications",
		Title: "Owners are in the namespace of their objects, or cluster-scoped",
		Run:   reportRisks("owner-scope"),
	}
	ownerVersion = checks.Check{
		ID: "owner-version", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Owner references name versions that are served",
		Run:   reportRisks("owner-version"),
	}
	twoControllers = checks.Check{
		ID: "two-controllers", Group: checks.Ownership, Severity: checks.Error, Source: "Kubernetes, Owners and Dependents",
		Title: "At most one owner is the controller",
		Run:   reportRisks("two-controllers"),
	}
	identityMove = checks.Check{
		ID: "identity-move", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Cluster-scoped kinds that others refer to have a label to move them",
		Run:   reportIdentities,
	}
	secretUnlinked = checks.Check{
		ID: "secret-unlinked", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Secrets that moved objects name are moved (for templates, see template-secret-owner)",
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

// RunWorld checks a namespace of a dump or a cluster. The findings are in the order of the objects. The context can't
// end the check early: all objects have to be read.
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

// templateRisk is a risk of an object of a template, or of an object that is generated from the template's Cluster.
type templateRisk struct {
	move.Risk
	template *rendered.Template
	// of is the object in the file; index is its position among the template's objects, or -1.
	of    rendered.Object
	index int
}

// finding returns the risk as a finding.
func (r templateRisk) finding() checks.Finding {
	return checks.Finding{Place: r.of.Place(r.Path...), Message: r.Message, Fix: r.Fix}
}

// isAlone reports whether no other object of the template names an object; one that names it may own it. Objects that
// only serve others have their own check.
func (r templateRisk) isAlone(s *checks.Subject) bool {
	return r.index >= 0 && !r.template.MayNameMore() && !r.template.IsNamed(r.index) && !rendered.OnlyServes(s, r.of)
}

// reportRisks returns a check that reports the risks with a rule in templates.
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

// templateRisks returns the risks of moving the objects of the templates.
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

// risksOf returns the risks of a template, including the ClusterClasses that it names.
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
			copied.SetNamespace("default") // clusterctl puts all objects into the user's namespace
			objects = append(objects, copied)
		}
	}
	graph := move.Discover(ctx, move.OfTemplate(ctx, t.Name, s.KnownKinds(), objects), "default")
	s.KeepGraph(t.Name, graph)
	var found []templateRisk
	for _, risk := range graph.Risks() {
		if r, ok := locate(files, risk); ok {
			found = append(found, r)
		}
	}
	return found, ctx.Err()
}

// locate finds the object of a risk in its file; objects generated from a topology are in no file.
func locate(files []*rendered.Template, risk move.Risk) (templateRisk, bool) {
	for i, file := range files {
		at := slices.IndexFunc(file.Objects, func(o rendered.Object) bool {
			return o.GetName() == risk.Object.Name && o.GroupVersionKind().GroupKind() == risk.Object.GroupKind()
		})
		if at < 0 {
			continue
		}
		if i > 0 && risk.Rule == "orphan" {
			return templateRisk{}, false // other checks report ClusterClasses
		}
		return templateRisk{Risk: risk, template: file, of: file.Objects[at], index: at}, true
	}
	return templateRisk{}, false
}
