package test

import (
	"context"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// topologyLife: a Cluster of the ClusterClass starts, although its kubelets have no provider IDs. A changed variable
// replaces the workers of a MachineDeployment and of a MachinePool, and no other machines.
func topologyLife(ctx context.Context, g *WithT, w *world) {
	c := w.newCluster(ctx, g, "topology")
	w.player.Unaware(c.key)
	c.variables = []string{"LIBVIRT_POOL_MACHINE_COUNT=1"}
	c.make(ctx, g, 1, "--flavor=topology")
	var deployments clusterv1.MachineDeploymentList
	g.Expect(c.client.List(ctx, &deployments, client.InNamespace(c.key.Namespace))).To(Succeed())
	g.Expect(deployments.Items).To(HaveLen(1))
	g.Expect(deployments.Items[0].Labels).To(HaveKeyWithValue(clusterv1.ClusterTopologyMachineDeploymentNameLabel, "md-0"))
	d := &deployment{cluster: c, key: client.ObjectKeyFromObject(&deployments.Items[0])}
	old := d.available(ctx, g, 1)
	var pools clusterv1.MachinePoolList
	g.Expect(c.client.List(ctx, &pools, client.InNamespace(c.key.Namespace))).To(Succeed())
	g.Expect(pools.Items).To(HaveLen(1))
	p := &pool{cluster: c, key: client.ObjectKeyFromObject(&pools.Items[0])}
	oldInPool := p.available(ctx, g, 1)
	controlPlane := client.MatchingLabels{clusterv1.MachineControlPlaneLabel: ""}
	before := c.machines(ctx, g, controlPlane)

	patch(ctx, g, c.client, c.key, &clusterv1.Cluster{}, func(o *clusterv1.Cluster) {
		for i := range o.Spec.Topology.Variables {
			if o.Spec.Topology.Variables[i].Name == "workerMachine" {
				o.Spec.Topology.Variables[i].Value = apiextensionsv1.JSON{Raw: []byte(`{"cpus":1,"memory":"288Mi","diskSize":"1Gi"}`)}
				return
			}
		}
		g.Expect(o.Spec.Topology.Variables).To(ContainElement(HaveField("Name", "workerMachine")))
	})
	d.replaced(ctx, g, old, "288Mi")
	p.replaced(ctx, g, oldInPool, "288Mi")
	g.Expect(names(c.machines(ctx, g, controlPlane))).To(Equal(names(before)))
	c.delete(ctx, g)
}
