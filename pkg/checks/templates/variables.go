package templates

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/rendered"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const sourceCommonVariables = "clusterctl provider contract, Workload cluster templates, Common variables"

var templateVariableSyntax = checks.Check{
	ID: "template-variable-syntax", Group: checks.Templates, Severity: checks.Error,
	Title:  "Variables of templates are written as clusterctl reads them",
	Source: sourceTemplateVariables,
	Run: rendered.All.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if line, err := variableError(t); err != nil {
			report(checks.Finding{Place: s.AtLine(t.Name, line),
				Message: fmt.Sprintf("clusterctl can't read a variable here, and refuses the whole file: %v", err),
				Fix:     "write ${NAME} or ${NAME:=default}, and $${...} for what isn't a variable"})
		}
		return nil
	}),
}

// variableError returns why clusterctl can't read the variables of a file, and the line.
func variableError(t *rendered.Template) (int, error) {
	if len(t.Failures) == 0 {
		return 0, nil
	}
	return templates.VariableError(t.Data)
}

var templateVariableDefault = checks.Check{
	ID: "template-variable-default", Group: checks.Templates, Severity: checks.Warning,
	Title:  "Defaults of templates' variables take effect, and agree",
	Source: sourceTemplateVariables,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		first := map[string]installed.VariableUse{}
		said := map[string]bool{}
		for _, use := range variableUses(t) {
			before, seen := first[use.Name]
			if !seen {
				first[use.Name] = use
			}
			if slices.Contains(rendered.AlwaysSet, use.Name) || said[use.Name] {
				continue
			}
			place := s.AtLine(t.Name, use.Line)
			if use.EmptyDefault && !seen {
				said[use.Name] = true
				report(checks.Finding{Place: place, Cause: use.Name + " is empty",
					Message: fmt.Sprintf("the default of %s is empty, which clusterctl takes for none: it asks every user for a value", use.Name),
					Fix:     fmt.Sprintf(`write ${%s:=""} where an empty text is meant`, use.Name)})
			} else if message := installed.Disagreement(before, use); seen && message != "" {
				said[use.Name] = true
				report(checks.Finding{Place: place, Cause: use.Name + " differs", Message: message, Fix: "give the variable the same default wherever it is used"})
			}
		}
		return nil
	}),
}

// variableUses returns the uses of variables in a template, line by line; none where clusterctl
// can't read them.
func variableUses(t *rendered.Template) []installed.VariableUse {
	if len(t.Variables) == 0 {
		return nil
	}
	return installed.VariableUses(t.Data)
}

var templateVariableCommon = checks.Check{
	ID: "template-variable-common", Group: checks.Templates, Severity: checks.Warning,
	Title:  "Templates use the variables that clusterctl's flags set",
	Source: sourceCommonVariables,
	Run: rendered.Templates.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		reportClusterNameVariable(t, report)
		reportNamespaceVariable(t, report)
		for _, c := range commonFields {
			reportCommonField(s, t, c, report)
		}
		return nil
	}),
}

// uses says whether the published file uses a variable.
func uses(t *rendered.Template, variable string) bool {
	return regexp.MustCompile(`\$\{\s*` + variable + `\b`).Match(t.Data)
}

// reportClusterNameVariable looks at the names of a template's Clusters: clusterctl's argument names one.
func reportClusterNameVariable(t *rendered.Template, report checks.Report) {
	var first *rendered.Object
	for i, o := range t.Objects {
		if !o.IsCore("Cluster") {
			continue
		}
		name, ok := o.Published("metadata", "name").(string)
		if !ok || slices.Contains(rendered.VariablesIn(name), templates.ClusterNameVariable) {
			return
		}
		if first == nil {
			first = &t.Objects[i]
		}
	}
	if first == nil {
		return
	}
	report(checks.Finding{Place: first.Place("metadata", "name"), Cause: templates.ClusterNameVariable,
		Message: fmt.Sprintf("the name that a user gives to `clusterctl generate cluster` has no effect: the Cluster is always called %v", first.Published("metadata", "name")),
		Fix:     "call the Cluster ${CLUSTER_NAME}, and all that is its own after it"})
}

// reportNamespaceVariable looks for namespaces of objects that are asked for by another name.
func reportNamespaceVariable(t *rendered.Template, report checks.Report) {
	for _, o := range t.Objects {
		text, _ := o.Published("metadata", "namespace").(string)
		names := rendered.VariablesIn(text)
		if len(names) == 0 || slices.Contains(names, templates.NamespaceVariable) {
			continue
		}
		report(checks.Finding{Place: o.Place("metadata", "namespace"), Severity: checks.Note, Cause: templates.NamespaceVariable + " " + names[0],
			Message: fmt.Sprintf("%s has no effect here: clusterctl puts the object into the namespace of --target-namespace", names[0]),
			Fix:     "write ${NAMESPACE}, which is that namespace"})
		return
	}
}

// commonField is where a variable of clusterctl's belongs.
type commonField struct {
	variable, flag string
	severity       checks.Severity
	// workers and controlPlane are paths in objects of these parts of a cluster, and topology are
	// paths in a Cluster; "*" is every item of a list.
	workers, controlPlane []any
	topology              [][]any
	// like is what a fixed value of a kind that is not known must look like to be meant.
	like *regexp.Regexp
}

var commonFields = []commonField{
	{variable: templates.KubernetesVersionVariable, flag: "--kubernetes-version", severity: checks.Warning,
		controlPlane: []any{"spec", "version"}, workers: []any{"spec", "template", "spec", "version"},
		topology: [][]any{{"spec", "topology", "version"}}, like: regexp.MustCompile(`^v1\.\d+\.\d+`)},
	{variable: templates.ControlPlaneCountVariable, flag: "--control-plane-machine-count", severity: checks.Note,
		controlPlane: []any{"spec", "replicas"}, topology: [][]any{{"spec", "topology", "controlPlane", "replicas"}}},
	{variable: templates.WorkerCountVariable, flag: "--worker-machine-count", severity: checks.Note,
		workers: []any{"spec", "replicas"},
		topology: [][]any{
			{"spec", "topology", "workers", "machineDeployments", "*", "replicas"},
			{"spec", "topology", "workers", "machinePools", "*", "replicas"},
		}},
}

// paths returns where the variable belongs in an object.
func (c commonField) paths(o rendered.Object) [][]any {
	switch {
	case o.IsCore("Cluster"):
		return c.topology
	case (o.IsCore("MachineDeployment") || o.IsCore("MachinePool") || o.IsCore("MachineSet")) && c.workers != nil:
		return [][]any{c.workers}
	case strings.HasSuffix(o.GetKind(), "ControlPlane") && c.controlPlane != nil:
		return [][]any{c.controlPlane}
	}
	return nil
}

// reportCommonField reports the first field in which a variable belongs, where the file does not use
// it at all: one set of machines may well have a size of its own.
func reportCommonField(s *checks.Subject, t *rendered.Template, c commonField, report checks.Report) {
	if uses(t, c.variable) {
		return
	}
	for _, o := range t.Objects {
		for _, pattern := range c.paths(o) {
			for _, path := range expand(o, pattern) {
				value := o.Published(path...)
				if value == nil || !isMeant(s, o, value, c) {
					continue
				}
				report(checks.Finding{Place: o.Place(path...), Severity: c.severity, Cause: c.variable,
					Message: fmt.Sprintf("clusterctl's %s has no effect: the field is %v, and nothing in the template uses ${%s}", c.flag, value, c.variable),
					Fix:     "write ${" + c.variable + "}"})
				return
			}
		}
	}
}

// isMeant says whether a field's value is what the flag is for. Of kinds that are not Cluster API's
// nobody knows: the version of some is not that of Kubernetes.
func isMeant(s *checks.Subject, o rendered.Object, value any, c commonField) bool {
	if kind, ok := s.KnownKinds().Kind(o.GroupVersionKind().GroupKind()); ok && kind.Core || c.like == nil {
		return true
	}
	text, _ := value.(string)
	return c.like.MatchString(text)
}
