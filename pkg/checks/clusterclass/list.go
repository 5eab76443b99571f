// Package clusterclass has the checks of ClusterClass definitions.
package clusterclass

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	clusterClassFileName,
	clusterClassVariables,
	clusterClassNamespace,
	clusterClassRefNamespace,
	clusterClassRefResolves,
	clusterClassShared,
	clusterClassAdmission,
	clusterClassTopology,
	clusterClassDryRunImmutability,
}
