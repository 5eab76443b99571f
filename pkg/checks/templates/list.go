// Package templates has the checks of cluster templates.
package templates

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	templateRendered,
	templateVariableSyntax,
	templateVariableDefault,
	templateVariableCommon,
	topologyClass,
	templateNamespaceObject,
	templateObjectNamespace,
	templateClusterScopedObject,
	templateRefNamespace,
	templateVariableDocumented,
	templateSchema,
	templateRefKind,
	templateRefResolves,
	templateRefVersion,
	templateClusterName,
	templateUnreferencedObject,
	templateResourceSet,
	templateSecretOwner,
}
