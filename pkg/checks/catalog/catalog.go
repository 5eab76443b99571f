// Package catalog joins the groups of checks.
package catalog

import (
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/clusterclass"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/ownership"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/repository"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/upgrade"
)

// All returns every check, in the order of their groups.
func All() checks.List {
	return slices.Concat(repository.Checks, metadata.Checks, components.Checks, contract.Checks,
		templates.Checks, clusterclass.Checks, ownership.Checks, upgrade.Checks)
}
