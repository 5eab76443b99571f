package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	coreGroup = "cluster.x-k8s.io/v1beta2"
	poolName  = "pool"
	// playedAtOnce is the number of Machines that playMachine creates concurrently.
	playedAtOnce = 8
)

// poolTrials have one LibvirtMachinePool, whose controller creates the LibvirtMachines. This program creates the
// Machines for them, in place of Cluster API's controllers.
func poolTrials(sizes []int) []trial {
	var trials []trial
	for _, size := range sizes {
		trials = append(trials, trial{title: "LibvirtMachines of a LibvirtMachinePool", size: size, fill: (*plant).fillPoolOf, await: (*plant).awaitPoolOf,
			own: map[string]int{"libvirtmachines": size}})
	}
	return trials
}

// fillPoolOf creates a MachinePool and its LibvirtMachinePool.
func (p *plant) fillPoolOf(ctx context.Context, size int) error {
	owner, err := p.create(ctx, `
apiVersion: %s
kind: MachinePool
metadata: {namespace: default, name: %[2]s, labels: {cluster.x-k8s.io/cluster-name: bench}}
spec:
  clusterName: bench
  replicas: %[3]d
  template:
    spec:
      clusterName: bench
      bootstrap: {dataSecretName: bootstrap}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachinePool, name: %[2]s}
`, coreGroup, poolName, size)
	if err != nil {
		return err
	}
	_, err = p.create(ctx, `
apiVersion: %s
kind: LibvirtMachinePool
metadata:
  namespace: default
  name: %[2]s
  labels: {cluster.x-k8s.io/cluster-name: bench}
  ownerReferences: [{apiVersion: %[3]s, kind: MachinePool, name: %[2]s, uid: %[4]s}]
spec:
  template:
    spec:
%[5]s
`, infraGroup, poolName, coreGroup, owner.GetUID(), indent(machineSpec, 6))
	return err
}

func indent(text string, by int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Repeat(" ", by) + strings.Join(lines, "\n"+strings.Repeat(" ", by))
}

// awaitPoolOf creates a Machine for each LibvirtMachine, and returns when the LibvirtMachinePool reports that all are
// provisioned, with their provider IDs.
func (p *plant) awaitPoolOf(ctx context.Context, size int, first func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pool := &unstructured.Unstructured{}
	pool.SetAPIVersion(coreGroup)
	pool.SetKind("MachinePool")
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: poolName}, pool); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		created, seen := map[string]bool{}, &provisioned{names: map[string]bool{}, first: first}
		making, ctx := errgroup.WithContext(ctx)
		making.SetLimit(playedAtOnce)
		err := p.follow(ctx, "LibvirtMachine", func(u *unstructured.Unstructured) (bool, error) {
			if !created[u.GetName()] {
				created[u.GetName()] = true
				making.Go(func() error { return p.playMachine(ctx, pool, u) })
			}
			return seen.note(u) >= size, nil
		})
		return errors.Join(making.Wait(), err)
	})
	group.Go(func() error {
		return p.follow(ctx, "LibvirtMachinePool", func(u *unstructured.Unstructured) (bool, error) {
			ids, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "providerIDList")
			is, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "provisioned")
			return is && len(ids) >= size, nil
		})
	})
	return group.Wait()
}

// playMachine simulates Cluster API's controllers for a pool's LibvirtMachine: it creates the Machine, and makes it the
// owner of the LibvirtMachine.
func (p *plant) playMachine(ctx context.Context, pool, infra *unstructured.Unstructured) error {
	machine, err := p.create(ctx, `
apiVersion: %s
kind: Machine
metadata:
  namespace: default
  name: %[2]s
  labels: {cluster.x-k8s.io/cluster-name: bench, cluster.x-k8s.io/pool-name: %[3]s}
  ownerReferences: [{apiVersion: %[1]s, kind: MachinePool, name: %[3]s, uid: %[4]s, controller: true}]
spec:
  clusterName: bench
  bootstrap: {dataSecretName: ""}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachine, name: %[2]s}
`, coreGroup, infra.GetName(), poolName, pool.GetUID())
	if err != nil {
		return fmt.Errorf("making the Machine of %s: %w", infra.GetName(), err)
	}
	before := infra.DeepCopy()
	is := true
	infra.SetOwnerReferences(append(infra.GetOwnerReferences(), metav1.OwnerReference{
		APIVersion: coreGroup, Kind: "Machine", Name: machine.GetName(), UID: machine.GetUID(), Controller: &is}))
	if err := p.client.Patch(ctx, infra, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("having the Machine own %s: %w", infra.GetName(), err)
	}
	return nil
}
