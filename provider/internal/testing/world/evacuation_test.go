package world_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// healthCheck creates a MachineHealthCheck for the machines with a label.
func healthCheck(s *world.Scene, cluster *clusterv1.Cluster, name, label, value string, unhealthy string) *clusterv1.MachineHealthCheck {
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: clusterv1.MachineHealthCheckSpec{
		ClusterName: cluster.Name, Selector: metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
		Checks: clusterv1.MachineHealthCheckChecks{NodeStartupTimeoutSeconds: ptr.To[int32](0)},
	}}
	check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(unhealthy))
	s.Create(check)
	return check
}

func hostObject(s *world.Scene, number int) *infrav1.LibvirtHost {
	return &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: s.Hosts[number].Name}}
}

func maintain(s *world.Scene, number int, maintenance *infrav1.HostMaintenance) *infrav1.LibvirtHost {
	host := hostObject(s, number)
	world.Change(s, host, func(h *infrav1.LibvirtHost) { h.Spec.Maintenance = maintenance })
	return host
}

// observer watches the Machines of a scene, without missing a change. It records the maximum number of concurrent
// deletions and the minimum number of Ready Machines.
type observer struct {
	lock             sync.Mutex
	watched          map[types.UID]bool
	leaving, ready   map[types.UID]bool
	most, fewest     int
	replaced, events int
}

// observe watches these Machines, and all new Machines of their owner.
func observe(t *testing.T, s *world.Scene, machines []clusterv1.Machine) *observer {
	o := &observer{watched: map[types.UID]bool{}, leaving: map[types.UID]bool{}, ready: map[types.UID]bool{}, fewest: len(machines)}
	for i := range machines {
		o.watched[machines[i].UID], o.ready[machines[i].UID] = true, true
	}
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: s.Client.Scheme()})
	s.Expect(err).ToNot(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	news, err := c.Watch(ctx, &clusterv1.MachineList{}, client.InNamespace(s.Namespace))
	s.Expect(err).ToNot(HaveOccurred())
	owner := metav1.GetControllerOf(&machines[0])
	s.Expect(owner).ToNot(BeNil())
	go func() {
		for event := range news.ResultChan() {
			if machine, is := event.Object.(*clusterv1.Machine); is && metav1.IsControlledBy(machine, &metav1.ObjectMeta{UID: owner.UID}) {
				o.see(event.Type, machine)
			}
		}
	}()
	t.Cleanup(func() {
		news.Stop()
		cancel()
	})
	return o
}

func (o *observer) see(what watch.EventType, machine *clusterv1.Machine) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.events++
	_, marked := machine.Annotations[clusterv1.RemediateMachineAnnotation]
	delete(o.leaving, machine.UID)
	delete(o.ready, machine.UID)
	switch {
	case what == watch.Deleted:
		if o.watched[machine.UID] {
			o.replaced++
		}
	case marked || !machine.DeletionTimestamp.IsZero():
		o.leaving[machine.UID] = true
	case conditions.IsTrue(machine, clusterv1.MachineReadyCondition):
		o.ready[machine.UID] = true
	}
	o.most = max(o.most, len(o.leaving))
	o.fewest = min(o.fewest, len(o.ready))
}

func (o *observer) result() (most, fewest, replaced int) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.most, o.fewest, o.replaced
}

// TestHostIsEvacuated checks that the three machines of a MachineDeployment on a host are replaced on other hosts, one
// after the other, by Cluster API's own controllers. A machine without a MachineHealthCheck stays and is listed.
func TestHostIsEvacuated(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a")
	cluster := s.Cluster("blue")
	control := s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 3, "first")
	machines := running(s, deployment, 3, "first")
	healthCheck(s, cluster, "workers", clusterv1.MachineDeploymentNameLabel, "workers", "100%")
	s.AddHost("rack-b", nil)
	s.AddHost("rack-c", nil)
	for number := range s.Hosts {
		s.Condition(hostObject(s, number), infrav1.ReadyCondition, metav1.ConditionTrue)
	}
	o := observe(t, s, machines)

	host := maintain(s, 0, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate, Reason: "new disks"})
	s.Eventually(func(g Gomega) {
		_, _, replaced := o.result()
		g.Expect(replaced).To(BeNumerically(">=", 1))
	}).Should(Succeed())
	s.Eventually(func(g Gomega) {
		s.Get(host)
		condition := conditions.Get(host, infrav1.EvacuatedCondition)
		g.Expect(condition).ToNot(BeNil())
		g.Expect(condition.Reason).To(Equal(infrav1.EvacuationBlockedReason), condition.Message)
		g.Expect(condition.Message).To(Equal("3 of 4 machines are gone\ncan't be replaced: " + s.Namespace + "/" + control.Name + ": no MachineHealthCheck has its Machine as a target"))
	}).Should(Succeed())
	s.Expect(conditions.GetReason(host, infrav1.ReadyCondition)).To(Equal(infrav1.InMaintenanceReason))
	most, fewest, replaced := o.result()
	s.Expect(most).To(Equal(1), "the maximum of concurrent deletions")
	s.Expect(fewest).To(Equal(2), "the minimum of Ready machines")
	s.Expect(replaced).To(Equal(3))
	running(s, deployment, 3, "first")
	for _, infra := range workers(s) {
		s.Expect(infra.Spec.HostName).ToNot(Equal(s.Hosts[0].Name))
	}

	// After the other machine is deleted too, the host is empty. Later it gets machines again.
	s.Delete(control)
	s.Expect(s.Condition(host, infrav1.EvacuatedCondition, metav1.ConditionTrue).Message).To(Equal("All of 4 machines are gone"))
	maintain(s, 0, nil)
	s.Eventually(func(g Gomega) {
		s.Get(host)
		g.Expect(conditions.Has(host, infrav1.EvacuatedCondition)).To(BeFalse())
		g.Expect(host.Status.Evacuation).To(BeNil())
		g.Expect(conditions.IsTrue(host, infrav1.ReadyCondition)).To(BeTrue())
	}).Should(Succeed())
	s.Expect(s.Log.String()).ToNot(ContainSubstring("is forbidden"), "the manager's role lacks a right")
	s.Delete(cluster)
	s.NothingLeft()
}

// TestEvacuationIsCancelled checks that an evacuation follows the limits of a MachineHealthCheck, skips paused
// machines, and replaces no machine after it was cancelled.
func TestEvacuationIsCancelled(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a", "rack-b")
	host := maintain(s, 1, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceCordon})
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	s.Template("first")
	deployment := s.MachineDeployment(cluster, "workers", 2, "first")
	machines := running(s, deployment, 2, "first")
	for _, infra := range s.LibvirtMachines() {
		s.Expect(infra.Spec.HostName).To(Equal(s.Hosts[0].Name), "a host in maintenance gets no machines")
	}
	check := healthCheck(s, cluster, "workers", clusterv1.MachineDeploymentNameLabel, "workers", "0")
	maintain(s, 1, nil)
	s.Condition(host, infrav1.ReadyCondition, metav1.ConditionTrue)
	o := observe(t, s, machines)

	host = maintain(s, 0, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate})
	says := func(text string) {
		s.Eventually(func(g Gomega) {
			s.Get(host)
			g.Expect(conditions.GetMessage(host, infrav1.EvacuatedCondition)).To(ContainSubstring(text))
		}).Should(Succeed())
	}
	says("MachineHealthCheck workers doesn't allow it now: Remediation is not allowed")
	marked := func() []string {
		var names []string
		for _, machine := range s.Machines() {
			if _, is := machine.Annotations[clusterv1.RemediateMachineAnnotation]; is {
				names = append(names, machine.Name)
			}
		}
		return names
	}
	s.Expect(marked()).To(HaveLen(1))
	maintain(s, 0, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceCordon})
	s.Eventually(marked).Should(BeEmpty())
	s.Eventually(func() bool { s.Get(host); return host.Status.Evacuation == nil }).Should(BeTrue())
	world.Change(s, check, func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse("100%"))
	})
	s.AwaitManagers()
	s.Expect(running(s, deployment, 2, "first")).To(HaveLen(2))
	_, _, replaced := o.result()
	s.Expect(replaced).To(BeZero())

	// Paused.
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	maintain(s, 0, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate})
	says("waiting: " + s.Namespace + "/" + machines[0].Name + ": it or its Cluster is paused")
	s.Expect(marked()).To(BeEmpty())
	world.Change(s, host, func(h *infrav1.LibvirtHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	s.Condition(host, infrav1.PausedCondition, metav1.ConditionTrue)
	world.Change(s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	s.AwaitManagers()
	s.Expect(marked()).To(BeEmpty(), "the host is paused")
	world.Change(s, host, func(h *infrav1.LibvirtHost) { delete(h.Annotations, clusterv1.PausedAnnotation) })
	s.Eventually(func() int { _, _, replaced := o.result(); return replaced }).Should(Equal(2))
	most, _, _ := o.result()
	s.Expect(most).To(Equal(1))
	s.Delete(cluster)
	s.NothingLeft()
}

// TestPoolIsEvacuated checks that machines of a MachinePool are evacuated.
func TestPoolIsEvacuated(t *testing.T) {
	t.Parallel()
	s := world.NewScene(t, "rack-a")
	cluster := s.Cluster("blue")
	s.ControlPlane(cluster)
	pool, infra := s.MachinePool(cluster, "workers", 2)
	s.PoolSettled(pool, infra, 2)
	healthCheck(s, cluster, "workers", clusterv1.MachinePoolNameLabel, "workers", "100%")
	machines := slices.DeleteFunc(s.Machines(), func(m clusterv1.Machine) bool { return m.Labels[clusterv1.MachinePoolNameLabel] == "" })
	s.Expect(machines).To(HaveLen(2))
	s.AddHost("rack-b", nil)
	s.Condition(hostObject(s, 1), infrav1.ReadyCondition, metav1.ConditionTrue)
	o := observe(t, s, machines)
	host := maintain(s, 0, &infrav1.HostMaintenance{Mode: infrav1.MaintenanceEvacuate})
	s.Eventually(func(g Gomega) {
		s.Get(host)
		g.Expect(conditions.GetMessage(host, infrav1.EvacuatedCondition)).To(HavePrefix("2 of 3 machines are gone\ncan't be replaced: "))
	}).WithTimeout(2 * time.Minute).Should(Succeed())
	s.PoolSettled(pool, infra, 2)
	most, _, replaced := o.result()
	s.Expect(most).To(Equal(1))
	s.Expect(replaced).To(Equal(2))
	var on []string
	for _, machine := range s.LibvirtMachines() {
		if strings.HasPrefix(machine.Name, "workers") {
			on = append(on, machine.Spec.HostName)
		}
	}
	s.Expect(on).To(HaveEach(s.Hosts[1].Name), fmt.Sprint(on))
	s.Delete(cluster)
	s.NothingLeft()
}
