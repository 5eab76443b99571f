// Package ownership has the checks for `clusterctl move`: of releases, of dumps and of clusters.
package ownership

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	orphan,
	danglingOwner,
	ownerCycle,
	ownerScope,
	ownerVersion,
	twoControllers,
	identityMove,
	secretUnlinked,
	classInOtherNamespace,
	moveBlocked,
	notPaused,
}
