package evacuation

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/indextest"
)

// fleetOf returns a cache with MachineSets of 50 Machines each, and their LibvirtMachines, of which the first ones are
// on a host.
func fleetOf(machines, residents int) *indextest.Cache {
	objects := []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"}},
		&clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "check"}, Spec: clusterv1.MachineHealthCheckSpec{ClusterName: "blue"}},
	}
	for i := range machines {
		name, set := fmt.Sprintf("m-%d", i), fmt.Sprintf("set-%d", i/50)
		if i%50 == 0 {
			objects = append(objects, &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: set}, Spec: clusterv1.MachineSetSpec{Replicas: ptr.To[int32](50)}})
		}
		infra := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name}}}}
		if i < residents {
			infra.Spec.HostName = "full"
		}
		objects = append(objects, infra, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name),
			Labels:          map[string]string{clusterv1.ClusterNameLabel: "blue"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: set, Controller: ptr.To(true)}}},
			Spec: clusterv1.MachineSpec{ClusterName: "blue"}})
	}
	return indextest.New(objects)
}

// TestWorkOfAnEvacuation: a reconcile of a host reads only the objects of its machines, each once, independent of the
// number of other machines.
func TestWorkOfAnEvacuation(t *testing.T) {
	read := func(machines, residents int) int {
		g := NewWithT(t)
		cache := fleetOf(machines, residents)
		all, err := (&Reconciler{Client: cache}).residents(t.Context(), "full")
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(all).To(HaveLen(residents))
		g.Expect(all[0].check).ToNot(BeNil())
		g.Expect(all[0].wanted).To(Equal(49))
		return cache.Read
	}
	g := NewWithT(t)
	g.Expect(read(4000, 50)).To(Equal(read(250, 50)), "of machines elsewhere")
	g.Expect(read(4000, 1000)).To(BeNumerically("<=", 5*1000), "each resident, its Machine, its Cluster, and each of its siblings once")
}

func BenchmarkEvacuation(b *testing.B) {
	for _, size := range []struct{ machines, residents int }{{250, 60}, {1000, 60}, {4000, 60}, {1000, 250}, {4000, 1000}} {
		b.Run(fmt.Sprintf("machines=%d/residents=%d", size.machines, size.residents), func(b *testing.B) {
			r := &Reconciler{Client: fleetOf(size.machines, size.residents)}
			for b.Loop() {
				if _, err := r.residents(b.Context(), "full"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
