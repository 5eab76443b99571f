package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// slowAnswer is for how long the slow host holds each answer back, and machinesOnSlow how many machines are bound
	// to it: enough to take all workers of the manager.
	slowAnswer     = 5 * time.Second
	machinesOnSlow = 2 * reconcilesAtOnce
	machinesOnRest = 1000
)

// slowHostTrials have a thousand machines made on nineteen hosts, first alone, and then while machines are made on a
// host that is slow too. Compare their times: what the slow host adds should be at most a tenth.
func slowHostTrials() []trial {
	made := trial{size: machinesOnRest, fill: (*plant).fillMachinesOf, await: (*plant).awaitMachinesOf}
	alone, beside := made, made
	alone.title, alone.prepare = "LibvirtMachines, no slow host", (*plant).cordonFirst
	beside.title, beside.prepare = "LibvirtMachines, and a slow host", func(p *plant, ctx context.Context) error {
		if err := p.cordonFirst(ctx); err != nil {
			return err
		}
		for i := range machinesOnSlow {
			if err := p.createBound(ctx, machinesOnRest+i); err != nil {
				return err
			}
		}
		go p.slowDown(ctx)
		return nil
	}
	return []trial{alone, beside}
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

// cordonFirst keeps the machines of a trial away from the first host.
func (p *plant) cordonFirst(ctx context.Context) error {
	host := object("LibvirtHost", "", "host-0")
	return p.client.Patch(ctx, host, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"maintenance":{"mode":"Cordon"}}}`)))
}

// createBound makes a machine that is bound to the first host.
func (p *plant) createBound(ctx context.Context, number int) error {
	if err := p.createMachine(ctx, number); err != nil {
		return err
	}
	machine := object("LibvirtMachine", "default", fmt.Sprintf("machine-%d", number))
	return p.client.Patch(ctx, machine, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"spec":{"hostName":"host-0","providerID":"libvirt:///%08x-0000-4000-8000-000000000000"}}`, number)))
}

func object(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(infraGroup)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
