// Package repository has the checks of the files that a release has, and of their names.
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
