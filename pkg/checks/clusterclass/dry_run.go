package clusterclass

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/installed"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

var clusterClassDryRunImmutability = checks.Check{
	ID: "clusterclass-dry-run-immutability", Group: checks.ClusterClass, Severity: checks.Warning,
	Title:  "The topology controller can dry-run changes of machines' and bootstrap templates",
	Source: "InfraMachine and BootstrapConfig contracts, support for SSA dry run",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if !supportsClasses(s) {
			return nil
		}
		for _, i := range installed.Implementations(s) {
			// The controller never changes templates of other kinds.
			if i.Template == nil || i.Resource != contract.InfraMachine && i.Resource != contract.BootstrapConfig {
				continue
			}
			if index := templateVersion(i); index >= 0 {
				reportTransitionRules(*i.Template, index, report)
			}
		}
		return nil
	},
}

// supportsClasses reports whether a ClusterClass can use the provider: an infrastructure provider needs a template for
// its cluster kind.
func supportsClasses(s *checks.Subject) bool {
	isInfrastructure := false
	for _, i := range installed.Implementations(s) {
		if i.Resource == contract.InfraCluster && i.Template != nil {
			return true
		}
		isInfrastructure = isInfrastructure || i.Resource == contract.InfraCluster
	}
	return !isInfrastructure
}

// templateVersion returns the index of the version in which Cluster API reads a kind's template: the version of the
// kind or else the stored one. It returns -1 if no schema exists.
func templateVersion(i *contract.Implementation) int {
	index := diff.VersionIndex(i.Template, i.Version)
	if index < 0 {
		index = slices.IndexFunc(i.Template.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	}
	if index < 0 || i.Template.Spec.Versions[index].Schema == nil || i.Template.Spec.Versions[index].Schema.OpenAPIV3Schema == nil {
		return -1
	}
	return index
}

// reportTransitionRules reports the rules of a version of a template's kind that compare with the template's old value.
func reportTransitionRules(crd checks.CRD, index int, report checks.Report) {
	var found []transitionRule
	version := crd.Spec.Versions[index]
	root := version.Schema.OpenAPIV3Schema
	path := []any{"spec", "versions", index, "schema", "openAPIV3Schema"}
	found = append(found, rulesOf(root, nil, path)...)
	spec := root.Properties["spec"]
	found = append(found, transitionRules(&spec, []any{"spec"}, manifest.Join(path, "properties", "spec"))...)
	if len(found) == 0 {
		return
	}
	var fields []string
	for _, r := range found {
		field := manifest.FieldPath(r.field...)
		if field == "" {
			field = "the whole object"
		}
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	report(checks.Finding{Place: crd.Place(found[0].path...),
		Message: fmt.Sprintf("rules of %s compare with the old value: of %s. Cluster API's topology controller uses a dry run to decide whether it has to create a new template, and a rule can't allow that dry run: a change that these rules refuse never reaches the Clusters of a ClusterClass",
			version.Name, strings.Join(fields, ", ")),
		Fix: "remove the rules from the template's kind, and let a validating webhook refuse changes unless topology.IsDryRunRequest reports a dry run"})
}

// transitionRule is a CEL rule that compares with the old value.
type transitionRule struct {
	// field is the field that the rule validates, and path is the rule's place in the CRD.
	field, path []any
}

// oldValue matches the name of the old value in a rule.
var oldValue = regexp.MustCompile(`\boldSelf\b`)

// rulesOf returns the transition rules of a schema itself.
func rulesOf(schema *apiextensionsv1.JSONSchemaProps, field, path []any) []transitionRule {
	var found []transitionRule
	for i, rule := range schema.XValidations {
		if oldValue.MatchString(rule.Rule) {
			found = append(found, transitionRule{field: field, path: manifest.Join(path, "x-kubernetes-validations", i, "rule")})
		}
	}
	return found
}

// transitionRules returns the transition rules of a schema and of all schemas below it.
func transitionRules(schema *apiextensionsv1.JSONSchemaProps, field, path []any) []transitionRule {
	found := rulesOf(schema, field, path)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		below := schema.Properties[name]
		found = append(found, transitionRules(&below, manifest.Join(field, name), manifest.Join(path, "properties", name))...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		found = append(found, transitionRules(schema.Items.Schema, field, manifest.Join(path, "items"))...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		found = append(found, transitionRules(schema.AdditionalProperties.Schema, field, manifest.Join(path, "additionalProperties"))...)
	}
	return found
}
