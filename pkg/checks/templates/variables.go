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
	Title:  "Variables of templates have the syntax of clusterctl",
	Source: sourceTemplateVariables,
	Run: rendered.All.Each(func(_ context.Context, s *checks.Subject, t *rendered.Template, report checks.Report) error {
		if line, err := variableError(t); err != nil {
			report(checks.Finding{Place: s.AtLine(t.Name, line),
				Message: fmt.Sprintf("clusterctl can't read a variable here, and refuses the whole file: %v", err),
				Fix:     "write ${NAME} or ${NAME:=default}, and $${...} for text that isn't a variable"})
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
	Title:  "Defaults of templates' variables take effect and are consistent",
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
					Message: fmt.Sprintf("the default of %s is empty, which clusterctl treats as no default: it requires a value from every user", use.Name),
					Fix:     fmt.Sprintf(`write ${%s:=""} for an empty text`, use.Name)})
			} else if message := installed.Disagreement(before, use); seen && message != "" {
				said[use.Name] = true
				report(checks.Finding{Place: place, Cause: use.Name + " differs", Message: message, Fix: "use the same default wherever the variable is used"})
			}
		}
		return nil
	}),
}

// variableUses returns the uses of variables in a template, line by line; none if clusterctl can't read them.
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

// uses reports whether the published file uses a variable.
func uses(t *rendered.Template, variable string) bool {
	return regexp.MustCompile(`\$\{\s*` + variable + `\b`).Match(t.Data)
}

// reportClusterNameVariable checks the names of a template's Clusters, which clusterctl's argument sets.
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
		Message: fmt.Sprintf("the name in `clusterctl generate cluster NAME` has no effect: the Cluster is always called %v", first.Published("metadata", "name")),
		Fix:     "name the Cluster ${CLUSTER_NAME}, and use the name in the names of its objects"})
}

// reportNamespaceVariable reports namespaces of objects that use another variable.
func reportNamespaceVariable(t *rendered.Template, report checks.Report) {
	for _, o := range t.Objects {
		text, _ := o.Published("metadata", "namespace").(string)
		names := rendered.VariablesIn(text)
		if len(names) == 0 || slices.Contains(names, templates.NamespaceVariable) {
			continue
		}
		report(checks.Finding{Place: o.Place("metadata", "namespace"), Severity: checks.Note, Cause: templates.NamespaceVariable + " " + names[0],
			Message: fmt.Sprintf("%s has no effect here: clusterctl puts the object into the namespace of --target-namespace", names[0]),
			Fix:     "write ${NAMESPACE}, which has that value"})
		return
	}
}

// commonField is a field for a variable that clusterctl sets.
type commonField struct {
	variable, flag string
	severity       checks.Severity
	// workers and controlPlane are paths in objects of these parts of a cluster, and topology are
	// paths in a Cluster; "*" is every item of a list.
	workers, controlPlane []any
	topology              [][]any
	// like matches the fixed values that count in kinds that are not known.
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

// paths returns the paths in an object to which the variable belongs.
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

// reportCommonField reports the first field to which a variable belongs, if the file does not use the variable: a file
// that uses it may have further sets of machines with other sizes.
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
					Message: fmt.Sprintf("clusterctl's %s has no effect: the field is %v, and the template does not use ${%s}", c.flag, value, c.variable),
					Fix:     "write ${" + c.variable + "}"})
				return
			}
		}
	}
}

// isMeant reports whether a field's value is one that the flag sets. In kinds of other projects, a version may not be
// that of Kubernetes.
func isMeant(s *checks.Subject, o rendered.Object, value any, c commonField) bool {
	if kind, ok := s.KnownKinds().Kind(o.GroupVersionKind().GroupKind()); ok && kind.Core || c.like == nil {
		return true
	}
	text, _ := value.(string)
	return c.like.MatchString(text)
}
