package checks

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

const sourceCommonVariables = "clusterctl provider contract, Workload cluster templates, Common variables"

var templateVariableSyntax = Check{
	ID: "template-variable-syntax", Group: Templates, Severity: Error,
	Title:  "Variables of templates are written as clusterctl reads them",
	Source: sourceTemplateVariables,
	Run: func(s *Subject, report Report) {
		for _, t := range append(s.templates(), s.clusterClasses()...) {
			if line, err := t.variableError(); err != nil {
				place := s.At(t.Name)
				place.Line = line
				report(Finding{Place: place,
					Message: fmt.Sprintf("clusterctl can't read a variable here, and refuses the whole file: %v", err),
					Fix:     "write ${NAME} or ${NAME:=default}, and $${...} for what isn't a variable"})
			}
		}
	},
}

// variableError returns why clusterctl can't read the variables of a file, and the line.
func (t *template) variableError() (int, error) {
	if len(t.failures) == 0 {
		return 0, nil
	}
	return templates.VariableError(t.Data)
}

// alwaysSet are variables that have a value whatever the user does: clusterctl sets them from its
// arguments, and to 1 and 0 where it has no counts. A default of theirs never counts.
var alwaysSet = []string{
	templates.ClusterNameVariable, templates.NamespaceVariable, templates.ControlPlaneCountVariable, templates.WorkerCountVariable,
}

var templateVariableDefault = Check{
	ID: "template-variable-default", Group: Templates, Severity: Warning,
	Title:  "Defaults of templates' variables take effect, and agree",
	Source: sourceTemplateVariables,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			first := map[string]variableUse{}
			said := map[string]bool{}
			for _, use := range t.variableUses() {
				before, seen := first[use.name]
				if !seen {
					first[use.name] = use
				}
				if slices.Contains(alwaysSet, use.name) || said[use.name] {
					continue
				}
				place := s.At(t.Name)
				place.Line = use.line
				if use.emptyDefault && !seen {
					said[use.name] = true
					report(Finding{Place: place, Cause: use.name + " is empty",
						Message: fmt.Sprintf("the default of %s is empty, which clusterctl takes for none: it asks every user for a value", use.name),
						Fix:     fmt.Sprintf(`write ${%s:=""} where an empty text is meant`, use.name)})
				} else if message := disagreement(before, use); seen && message != "" {
					said[use.name] = true
					report(Finding{Place: place, Cause: use.name + " differs", Message: message, Fix: "give the variable the same default wherever it is used"})
				}
			}
		}
	},
}

// variableUses returns the uses of variables in a template, line by line; none where clusterctl
// can't read them.
func (t *template) variableUses() []variableUse {
	if len(t.variables) == 0 {
		return nil
	}
	var uses []variableUse
	for i, line := range bytes.Split(t.Data, []byte("\n")) {
		if bytes.Contains(line, []byte("${")) {
			uses = append(uses, variablesOf(line, i+1)...)
		}
	}
	return uses
}

var templateVariableCommon = Check{
	ID: "template-variable-common", Group: Templates, Severity: Warning,
	Title:  "Templates use the variables that clusterctl's flags set",
	Source: sourceCommonVariables,
	Run: func(s *Subject, report Report) {
		for _, t := range s.templates() {
			t.reportClusterNameVariable(report)
			t.reportNamespaceVariable(report)
			for _, c := range commonFields {
				s.reportCommonField(t, c, report)
			}
		}
	},
}

// uses says whether the published file uses a variable.
func (t *template) uses(variable string) bool {
	return regexp.MustCompile(`\$\{\s*` + variable + `\b`).Match(t.Data)
}

// reportClusterNameVariable looks at the names of a template's Clusters: clusterctl's argument names one.
func (t *template) reportClusterNameVariable(report Report) {
	var first *object
	for i, o := range t.objects {
		if !isCore(o, "Cluster") {
			continue
		}
		name, ok := o.published("metadata", "name").(string)
		if !ok || slices.Contains(variablesIn(name), templates.ClusterNameVariable) {
			return
		}
		if first == nil {
			first = &t.objects[i]
		}
	}
	if first == nil {
		return
	}
	report(Finding{Place: first.place("metadata", "name"), Cause: templates.ClusterNameVariable,
		Message: fmt.Sprintf("the name that a user gives to `clusterctl generate cluster` has no effect: the Cluster is always called %v", first.published("metadata", "name")),
		Fix:     "call the Cluster ${CLUSTER_NAME}, and all that is its own after it"})
}

// reportNamespaceVariable looks for namespaces of objects that are asked for by another name.
func (t *template) reportNamespaceVariable(report Report) {
	for _, o := range t.objects {
		text, _ := o.published("metadata", "namespace").(string)
		names := variablesIn(text)
		if len(names) == 0 || slices.Contains(names, templates.NamespaceVariable) {
			continue
		}
		report(Finding{Place: o.place("metadata", "namespace"), Severity: Note, Cause: templates.NamespaceVariable + " " + names[0],
			Message: fmt.Sprintf("%s has no effect here: clusterctl puts the object into the namespace of --target-namespace", names[0]),
			Fix:     "write ${NAMESPACE}, which is that namespace"})
		return
	}
}

// commonField is where a variable of clusterctl's belongs.
type commonField struct {
	variable, flag string
	severity       Severity
	// workers and controlPlane are paths in objects of these parts of a cluster, and topology are
	// paths in a Cluster; "*" is every item of a list.
	workers, controlPlane []any
	topology              [][]any
	// like is what a fixed value of a kind that is not known must look like to be meant.
	like *regexp.Regexp
}

var commonFields = []commonField{
	{variable: templates.KubernetesVersionVariable, flag: "--kubernetes-version", severity: Warning,
		controlPlane: []any{"spec", "version"}, workers: []any{"spec", "template", "spec", "version"},
		topology: [][]any{{"spec", "topology", "version"}}, like: regexp.MustCompile(`^v1\.\d+\.\d+`)},
	{variable: templates.ControlPlaneCountVariable, flag: "--control-plane-machine-count", severity: Note,
		controlPlane: []any{"spec", "replicas"}, topology: [][]any{{"spec", "topology", "controlPlane", "replicas"}}},
	{variable: templates.WorkerCountVariable, flag: "--worker-machine-count", severity: Note,
		workers: []any{"spec", "replicas"},
		topology: [][]any{
			{"spec", "topology", "workers", "machineDeployments", "*", "replicas"},
			{"spec", "topology", "workers", "machinePools", "*", "replicas"},
		}},
}

// paths returns where the variable belongs in an object.
func (c commonField) paths(o object) [][]any {
	switch {
	case isCore(o, "Cluster"):
		return c.topology
	case (isCore(o, "MachineDeployment") || isCore(o, "MachinePool") || isCore(o, "MachineSet")) && c.workers != nil:
		return [][]any{c.workers}
	case strings.HasSuffix(o.GetKind(), "ControlPlane") && c.controlPlane != nil:
		return [][]any{c.controlPlane}
	}
	return nil
}

// reportCommonField reports the first field in which a variable belongs, where the file does not use
// it at all: one set of machines may well have a size of its own.
func (s *Subject) reportCommonField(t *template, c commonField, report Report) {
	if t.uses(c.variable) {
		return
	}
	for _, o := range t.objects {
		for _, pattern := range c.paths(o) {
			for _, path := range o.expand(pattern) {
				value := o.published(path...)
				if value == nil || !s.isMeant(o, value, c) {
					continue
				}
				report(Finding{Place: o.place(path...), Severity: c.severity, Cause: c.variable,
					Message: fmt.Sprintf("clusterctl's %s has no effect: the field is %v, and nothing in the template uses ${%s}", c.flag, value, c.variable),
					Fix:     "write ${" + c.variable + "}"})
				return
			}
		}
	}
}

// isMeant says whether a field's value is what the flag is for. Of kinds that are not Cluster API's
// nobody knows: the version of some is not that of Kubernetes.
func (s *Subject) isMeant(o object, value any, c commonField) bool {
	if kind, ok := s.knownKinds().Kind(o.GroupVersionKind().GroupKind()); ok && kind.Core || c.like == nil {
		return true
	}
	text, _ := value.(string)
	return c.like.MatchString(text)
}

// variablesIn returns the names of the variables of a text.
func variablesIn(text string) []string {
	var names []string
	for _, use := range variableReference.FindAllStringSubmatch(text, -1) {
		names = append(names, use[1])
	}
	return names
}
