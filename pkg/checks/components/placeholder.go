package components

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

var (
	// vars matches kustomize's vars, and Kubernetes' references to a container's environment.
	vars = regexp.MustCompile(`\$\(([A-Z][A-Z0-9_]*)\)`)
	// scaffoldNames are the names in scaffolds that kustomize's replacements replace.
	scaffoldNames = regexp.MustCompile(`(^|[^A-Za-z0-9_{(])(SERVICE_NAME|SERVICE_NAMESPACE|CERTIFICATE_NAME|CERTIFICATE_NAMESPACE)($|[^A-Za-z0-9_})])`)
)

var placeholder = checks.Check{
	ID: "placeholder", Group: checks.Components, Severity: checks.Warning,
	Title:  "No placeholder of a kustomization is left",
	Source: "Kustomize, vars and replacements",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		refusedImages := map[manifest.Place]bool{}
		environments := map[*manifest.Document]*environment{}
		for _, c := range installed.Containers(s) {
			// image-canonical reports the images that clusterctl can't read.
			if _, err := canonicalImage(c); err != nil {
				refusedImages[c.Place("image")] = true
			}
			if environments[c.Pod.Document] == nil {
				environments[c.Pod.Document] = &environment{names: map[string]bool{}}
			}
			environments[c.Pod.Document].add(c)
		}
		for _, d := range s.Objects() {
			walk := placeholderWalk{d, environments[d], func(f checks.Finding) {
				if !refusedImages[f.Place] {
					report(f)
				}
			}}
			manifest.Walk(d.Object.Object, nil, walk.value)
		}
		return nil
	},
}

// environment contains the variables that a workload's containers may refer to.
type environment struct {
	names map[string]bool
	// open is set if some variables come from objects whose keys are not known.
	open bool
}

// add adds the variables of a container.
func (e *environment) add(c installed.Container) {
	e.open = e.open || len(manifest.List(c.Fields, "envFrom")) > 0
	for _, fields := range manifest.Maps(c.Fields, "env") {
		e.names[manifest.Text(fields, "name")] = true
	}
}

// has reports whether a variable exists. Kubernetes itself sets those of Services.
func (e *environment) has(name string) bool {
	return e != nil && (e.open || e.names[name] || strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT"))
}

// placeholderWalk finds placeholders in the texts of an object.
type placeholderWalk struct {
	*manifest.Document
	// environment is the environment of its containers, or nil.
	environment *environment
	report      checks.Report
}

// opaque are fields whose texts are files or descriptions.
var opaque = []string{"data", "stringData", "binaryData", "schema", "additionalPrinterColumns"}

// value checks a value of the object. It returns false if the values below it are to be skipped.
func (w placeholderWalk) value(path []any, value any) bool {
	if slices.Contains(opaque, manifest.FieldName(path)) {
		return false
	}
	text, _ := value.(string)
	if found := w.placeholder(text, path); found != "" {
		w.report(checks.Finding{
			Place:   w.Place(path...),
			Message: fmt.Sprintf("%s is still in %q: it is never replaced in a published file", found, text),
			Fix:     "let the kustomization replace it: put the replacements into the kustomization that contains the objects",
		})
	}
	return true
}

// placeholder returns the placeholder in a text, or "".
func (w placeholderWalk) placeholder(text string, path []any) string {
	if !strings.ContainsAny(text, "$_") {
		return ""
	}
	for _, match := range vars.FindAllStringSubmatch(text, -1) {
		if !w.environment.has(match[1]) {
			return match[0]
		}
	}
	if match := scaffoldNames.FindStringSubmatch(text); match != nil && !w.inContainer(path) {
		return match[2]
	}
	return ""
}

// inContainer reports whether a path leads into a container, where such names refer to its environment.
func (w placeholderWalk) inContainer(path []any) bool {
	return slices.Contains(path, any("containers")) || slices.Contains(path, any("initContainers"))
}
