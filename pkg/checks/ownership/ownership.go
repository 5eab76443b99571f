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
	orphan = riskCheck("orphan", checks.Warning, sourceChain,
		"Every object is linked to a Cluster, a ClusterResourceSet or a move hierarchy")
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
	ownerCycle = riskCheck("owner-cycle", checks.Error, sourceChain,
		"Owner references have no cycle")
	ownerScope = riskCheck("owner-scope", checks.Error, "Kubernetes, Owners and Dependents, Owner references in object specifications",
		"Owners are in the namespace of their objects, or cluster-scoped")
	ownerVersion = riskCheck("owner-version", checks.Warning, sourceMovedObjects,
		"Owner references name versions that are served")
	twoControllers = riskCheck("two-controllers", checks.Error, "Kubernetes, Owners and Dependents",
		"At most one owner is the controller")
	identityMove = checks.Check{
		ID: "identity-move", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Cluster-scoped kinds that others refer to have a label to move them",
		Run:   reportIdentities,
	}
	secretUnlinked = checks.Check{
		ID: "secret-unlinked", Group: checks.Ownership, Severity: checks.Warning, Source: sourceMovedObjects,
		Title: "Secrets that moved objects name are moved (for templates, see template-secret-owner)",
	}
	classInOtherNamespace = riskCheck("class-in-other-namespace", checks.Warning, sourceMovedObjects,
		"ClusterClasses are in the namespaces of their Clusters")
	moveBlocked = riskCheck("move-blocked", checks.Warning, sourceMovedObjects,
		"No annotation blocks the move")
	notPaused = riskCheck("not-paused", checks.Warning, sourceMovedObjects,
		"Clusters and ClusterClasses are not paused")
)

// riskCheck returns a check that reports the risks of one rule in templates. Its ID is that of the rule.
func riskCheck(rule string, severity checks.Severity, source, title string) checks.Check {
	return checks.Check{
		ID: rule, Group: checks.Ownership, Severity: severity, Title: title, Source: source,
		Run: func(ctx context.Context, s *checks.Subject, report checks.Report) error {
			risks, err := templateRisks(ctx, s)
			for _, r := range risks {
				if r.Rule == rule {
					report(checks.Finding{Place: r.of.Place(r.Path...), Message: r.Message, Fix: r.Fix})
				}
			}
			return err
		},
	}
}

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

// templateRisk is a risk of an object of a template.
type templateRisk struct {
	move.Risk
	of rendered.Object
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
		file, index := locate(files, risk)
		if index < 0 || risk.Rule == "orphan" && (file != t || !isAlone(s, t, index)) {
			continue // other checks report ClusterClasses
		}
		found = append(found, templateRisk{risk, file.Objects[index]})
	}
	return found, ctx.Err()
}

// locate returns the file with the object of a risk, and the object's index; -1 for an object that is generated from a
// topology, which is in no file.
func locate(files []*rendered.Template, risk move.Risk) (*rendered.Template, int) {
	for _, file := range files {
		index := slices.IndexFunc(file.Objects, func(o rendered.Object) bool {
			return o.GetName() == risk.Object.Name && o.GroupVersionKind().GroupKind() == risk.Object.GroupKind()
		})
		if index >= 0 {
			return file, index
		}
	}
	return nil, -1
}

// isAlone reports whether no other object of the template names an object; one that names it may own it. Objects that
// only serve others have their own check.
func isAlone(s *checks.Subject, t *rendered.Template, index int) bool {
	return !t.MayNameMore() && !t.IsNamed(index) && !rendered.OnlyServes(s, t.Objects[index])
}
