package main

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// slowAnswer is the delay of the slow host's answers, and machinesOnSlow the number of machines on it: enough to
	// occupy all workers of the manager.
	slowAnswer     = 5 * time.Second
	machinesOnSlow = 2 * reconcilesAtOnce
)

// slowHostTrials create machines on nineteen hosts, first alone, and then while machines are also created on a
// slow host.
func slowHostTrials(onRest int) []trial {
	common := trial{size: onRest, fill: (*plant).fillMachinesOf, await: (*plant).awaitMachinesOf}
	alone, slow := common, common
	alone.title, alone.prepare = "LibvirtMachines, no slow host", (*plant).setFirstApart
	slow.title, slow.prepare = "LibvirtMachines, and a slow host", func(p *plant, ctx context.Context) error {
		if err := errors.Join(p.setFirstApart(ctx), p.createCluster(ctx, "slow", "192.0.2.11", "{matchLabels: {bench: slow}}")); err != nil {
			return err
		}
		for i := range machinesOnSlow {
			if err := p.createMachine(ctx, "slow", onRest+i); err != nil {
				return err
			}
		}
		return nil
	}
	slow.await = func(p *plant, ctx context.Context, size int, first func()) error {
		go p.slowDown(ctx)
		return p.awaitMachinesOf(ctx, size, first)
	}
	slow.aim = 1.1
	return []trial{alone, slow}
}

// slowDown makes the first host slow as soon as the manager has connected to it.
func (p *plant) slowDown(ctx context.Context) {
	for host := object("LibvirtHost", "", "host-0"); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(host), host); err != nil {
			continue
		}
		if version, _, _ := unstructured.NestedString(host.Object, "status", "libvirtVersion"); version != "" {
			p.hosts[0].slow.Store(int64(slowAnswer))
			return
		}
	}
}

// setFirstApart keeps the machines of a trial away from the first host.
func (p *plant) setFirstApart(ctx context.Context) error {
	const mergePatch = "application/merge-patch+json"
	return errors.Join(
		p.client.Patch(ctx, object("LibvirtHost", "", "host-0"), client.RawPatch(mergePatch, []byte(`{"metadata":{"labels":{"bench":"slow"}}}`))),
		p.client.Patch(ctx, object("LibvirtCluster", "default", "bench"),
			client.RawPatch(mergePatch, []byte(`{"spec":{"hostSelector":{"matchExpressions":[{"key":"bench","operator":"DoesNotExist"}]}}}`))))
}

func object(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(infraGroup)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
