// Package upgrade has the checks of the upgrade from the previous release.
package upgrade

import "github.com/clusterctl-release/clusterctl-release/pkg/checks"

// Checks are the checks of the group, in the order of reports.
var Checks = checks.List{
	crdRemoved,
	crdVersionRemoved,
	storageVersionBack,
	crdScopeChanged,
	conversionRemoved,
	crdUpdateRefused,
	crdFieldRemoved,
	crdFieldRequired,
	crdEnumNarrowed,
	crdValidationNarrowed,
	crdDefaultChanged,
	contractSkipped,
	contractLabelLeft,
	contractRaised,
	namespaceChanged,
	selectorChanged,
	roleRefChanged,
	immutableFieldChanged,
	webhookRemoved,
	objectLeft,
	failurePolicyFail,
	permissionsWidened,
	configRequired,
	kubernetesRequired,
	imageRegistryChanged,
	variableAdded,
	flavorRemoved,
	classChanged,
}
