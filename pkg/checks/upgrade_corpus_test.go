package checks_test

import (
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
)

// TestUpgradeToTheSameIsSilent upgrades every release of the corpus to itself: nothing changed, so
// no check of an upgrade may find anything.
func TestUpgradeToTheSameIsSilent(t *testing.T) {
	for label, unit := range corpusUnits(t) {
		for _, f := range upgradeFindings(t, &checks.Subject{Release: unit.release, Previous: unit.release}) {
			t.Errorf("%s: %s %s: %s", label, f.ID, f.Path, f.Message)
		}
	}
}

// upgradeFindings runs the checks of an upgrade.
func upgradeFindings(t *testing.T, s *checks.Subject) []checks.Finding {
	t.Helper()
	var found []checks.Finding
	for _, check := range checks.All() {
		if check.Group == checks.Upgrade {
			check.Run(s, func(f checks.Finding) {
				f.ID = check.ID
				found = append(found, f)
			})
		}
	}
	return found
}
