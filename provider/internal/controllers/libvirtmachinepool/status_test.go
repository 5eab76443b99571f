package libvirtmachinepool

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestProblemIsNoFormat: the text of an error is shown unchanged, also if it contains percent signs.
func TestProblemIsNoFormat(t *testing.T) {
	problem := errors.New("reading https://host/a%20b: 100% full")
	for name, tc := range map[string]struct {
		secret        *string
		reason, wants string
	}{
		"waiting":    {reason: infrav1.WaitingForBootstrapDataReason, wants: "Waiting for spec.template.spec.bootstrap.dataSecretName of the MachinePool to be set: "},
		"scaling up": {secret: ptr.To("data"), reason: infrav1.ScalingUpReason, wants: "There are 0 of 3 machines: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{infra: &infrav1.LibvirtMachinePool{}, owner: &clusterv1.MachinePool{}, cluster: &clusterv1.Cluster{}}
			s.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
			s.owner.Spec.Replicas = ptr.To[int32](3)
			s.owner.Spec.Template.Spec.Bootstrap.DataSecretName = tc.secret
			condition := s.replicasReady(&members{}, problem)
			g.Expect(condition.Reason).To(Equal(tc.reason))
			g.Expect(condition.Message).To(Equal(tc.wants + problem.Error()))
		})
	}
}
