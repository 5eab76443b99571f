package test

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/audit"
)

// unusedGrants are verbs that the manager may need and that it doesn't need in every run of all scenes, with the reason.
var unusedGrants = map[string]string{
	"create tokenreviews.authentication.k8s.io":                             "it asks who scrapes its metrics, and nobody does in a scene",
	"create subjectaccessreviews.authorization.k8s.io":                      "it asks whether they may, and nobody scrapes its metrics in a scene",
	"patch ipaddressclaims.ipam.cluster.x-k8s.io":                           "the owner reference of a claim comes back when somebody has removed it, which no scene does",
	"patch events.events.k8s.io":                                            "an event that happens again minutes later is counted",
	"patch events in caplv-system":                                          "an event of elections that happens again is counted",
	"patch machines.cluster.x-k8s.io/status":                                "a machine of a pool that is healthy again before it is replaced loses a condition, which no scene waits for",
	"update libvirtclusters.infrastructure.cluster.x-k8s.io/finalizers":     blocking,
	"update libvirtmachinepools.infrastructure.cluster.x-k8s.io/finalizers": blocking,
	"update libvirtmachines.infrastructure.cluster.x-k8s.io/finalizers":     blocking,
}

const blocking = "with the admission plugin OwnerReferencesPermissionEnforcement, which is off here, it is needed to set blockOwnerDeletion"

// grantsUsed compares what the roles of the release grant the provider's manager with what it asked the API servers for:
// nothing that it asked for was refused, and it asked for everything that it is granted, but for unusedGrants. The second is
// only so after all scenes.
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
		g.Expect(granted).To(HaveKey(grant), "unusedGrants has a reason for what isn't granted: %s", reason)
	}
	if played, all := int(w.played.Load()), len(beside)+len(alone); played < all || t.Failed() {
		t.Logf("%d of %d scenes were played to their end: what the manager is granted and doesn't use shows only after all of them", played, all)
		return
	}
	var useless []string
	for _, grant := range unused {
		if _, explained := unusedGrants[grant.String()]; !explained {
			useless = append(useless, fmt.Sprint(grant))
		}
	}
	g.Expect(useless).To(BeEmpty(), "the manager is granted what it has used in no scene: take it away, or give a reason in unusedGrants")
}
