package test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
)

// scene is what is done with a world and holds afterwards. It waits by itself for what it needs, and
// leaves nothing on hosts.
type scene struct {
	name string
	run  func(ctx context.Context, g *WithT, w *world)
}

// test plays the scene. Where it fails, it shows what there is of all clusters then, before others delete theirs.
func (s scene) test(ctx context.Context, w *world) func(*testing.T) {
	return func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Log(w.describe(ctx))
			}
		}()
		s.run(ctx, NewWithT(t), w)
		w.played.Add(1)
	}
}

// beside are scenes that don't notice each other: each has a cluster and a namespace of its own. They
// run at the same time, the longest one first.
var beside = []scene{
	{name: "a machine pool's life", run: poolLife},
	{name: "a host is cut off for minutes", run: hostCutOff},
	{name: "a load balancer's life", run: balancerLife},
	{name: "a deployment's life", run: deploymentLife},
	{name: "a host is maintained", run: hostMaintained},
	{name: "addresses from pools", run: addressesLife},
	{name: "a topology's life", run: topologyLife},
	{name: "a machine is updated in place", run: updatedInPlace},
	{name: "orphans are collected", run: orphansCollected},
	{name: "hardware", run: hardware},
	{name: "a host is kept for one namespace and CPUs of it for one machine", run: keptHost},
	{name: "a host's key is pinned", run: hostKeyPinned},
	{name: "a second management cluster is started", run: secondStarted},
}

// scenesAtOnce is how many scenes are played at the same time: with more, the guests that boot leave little of
// two processors to the management cluster.
const scenesAtOnce = 6

// alone are scenes that others would notice. They come afterwards, one by one, and go on with the
// cluster of the deployment until the last of them deletes it.
var alone = []scene{
	{name: "libvirtd is killed and started again", run: daemonKilled},
	{name: "nothing else was taken for an orphan", run: nothingElseOrphaned},
	{name: "a cluster is moved", run: moved},
	{name: "what was moved stays", run: movedStays},
	{name: "deletion leaves nothing", run: demoDeleted},
	{name: "images that nothing uses are deleted", run: imagesCollected},
}

// TestScenes plays all scenes in one world, after which hosts have nothing left.
func TestScenes(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w := newWorld(ctx, t, g)
	w.hostsReady(ctx, g)
	t.Run("beside", func(t *testing.T) {
		// Not t.Parallel, which counts processors: scenes wait more than they work.
		var group errgroup.Group
		group.SetLimit(scenesAtOnce)
		for _, scene := range beside {
			group.Go(func() error {
				t.Run(scene.name, scene.test(ctx, w))
				return nil
			})
		}
		_ = group.Wait() // failures are the tests'
	})
	for _, scene := range alone {
		if t.Failed() {
			return
		}
		t.Run(scene.name, scene.test(ctx, w))
	}
	w.nothingLeft(g)
	w.grantsUsed(ctx, t, g)
}
