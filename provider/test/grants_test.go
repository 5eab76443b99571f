package test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/audit"
)

// unusedGrants has the granted verbs that the manager doesn't use in every run of all scenes, with the reason.
var unusedGrants = map[string]string{
	"create tokenreviews.authentication.k8s.io":                             "it authenticates clients of its metrics, which no scene has",
	"create subjectaccessreviews.authorization.k8s.io":                      "it authorizes clients of its metrics, which no scene has",
	"patch ipaddressclaims.ipam.cluster.x-k8s.io":                           "it restores a removed owner reference of a claim, which no scene removes",
	"patch events.events.k8s.io":                                            "it counts repeated events, which need minutes",
	"patch events in caplv-system":                                          "it counts repeated events of elections",
	"patch machines.cluster.x-k8s.io/status":                                "it removes a condition from a machine that is healthy again before its replacement, which no scene waits for",
	"update libvirtclusters.infrastructure.cluster.x-k8s.io/finalizers":     blocking,
	"update libvirtmachinepools.infrastructure.cluster.x-k8s.io/finalizers": blocking,
	"update libvirtmachines.infrastructure.cluster.x-k8s.io/finalizers":     blocking,
}

const blocking = "with the admission plugin OwnerReferencesPermissionEnforcement, which is off here, it is needed to set blockOwnerDeletion"

// grantsUsed compares the grants of the release's roles with the requests of the provider's manager: no request was
// refused, and all grants were used, except unusedGrants. The latter is true only after all scenes.
func (w *world) grantsUsed(ctx context.Context, t *testing.T, g *WithT) {
	t.Helper()
	grants, err := audit.Grants(ctx, w.Client, testbed.ManagerNamespace, testbed.ManagerAccount)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(grants).ToNot(BeEmpty())
	var requests []audit.Request
	for _, bed := range []*testbed.Testbed{w.Testbed, w.second} {
		if bed == nil {
			continue
		}
		asked, err := audit.Requests(bed.ControlPlane.AuditLog(), audit.Account(testbed.ManagerNamespace, testbed.ManagerAccount))
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(asked).ToNot(BeEmpty())
		requests = append(requests, asked...)
	}
	refused, unused := audit.Compare(grants, requests)
	g.Expect(refused).To(BeEmpty(), "the manager was refused: grant it, by a marker +kubebuilder:rbac or in provider/config/rbac, or don't ask for it")
	granted := map[string]bool{}
	for _, grant := range grants {
		granted[grant.String()] = true
	}
	for grant, reason := range unusedGrants {
		g.Expect(granted).To(HaveKey(grant), "unusedGrants has a reason for a verb that isn't granted: %s", reason)
	}
	if played, all := int(w.played.Load()), len(parallel)+len(sequential); played < all || t.Failed() {
		t.Logf("%d of %d scenes were completed: unused grants are checked only after all of them", played, all)
		return
	}
	var useless []string
	for _, grant := range unused {
		if _, explained := unusedGrants[grant.String()]; !explained {
			useless = append(useless, fmt.Sprint(grant))
		}
	}
	g.Expect(useless).To(BeEmpty(), "no scene has used these grants of the manager: remove them, or add a reason to unusedGrants")
}
