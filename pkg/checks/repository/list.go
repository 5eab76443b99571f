// Package repository has the checks of a release's files and their names.
package repository

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	fileNames,
	componentsPresent,
	metadataPresent,
	defaultTemplate,
	assetsComplete,
	version,
	providerName,
	checks.SuppressionUnused,
}
