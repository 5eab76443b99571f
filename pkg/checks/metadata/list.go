// Package metadata has the checks of metadata.yaml.
package metadata

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	metadataParse,
	metadataAPIVersion,
	metadataKind,
	seriesPresent,
	seriesDuplicate,
	seriesOrder,
	seriesDropped,
	seriesContractChanged,
	contractKnown,
	contractMatchesCRDs,
}
