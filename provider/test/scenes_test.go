package test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
)

// scene is a test in a world. It waits for its prerequisites, and leaves no objects on hosts.
type scene struct {
	name string
	run  func(ctx context.Context, g *WithT, w *world)
}

// test runs the scene. If it fails, it shows all clusters before other scenes delete them.
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

// parallel are scenes that don't affect each other: each has a separate cluster and namespace. They run concurrently,
// the longest one first.
var parallel = []scene{
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
	{name: "a host is reserved for one namespace, with dedicated CPUs", run: keptHost},
	{name: "a host's key is pinned", run: hostKeyPinned},
	{name: "a second management cluster is started", run: secondStarted},
}

// maxParallel is the maximum number of concurrent scenes: with more, booting guests leave too little of two processors
// to the management cluster.
const maxParallel = 6

// sequential are scenes that affect other ones. They follow one by one, and use the demo cluster until the last but
// one deletes it.
var sequential = []scene{
	{name: "libvirtd is killed and started again", run: daemonKilled},
	{name: "no other machine was reported as an orphan", run: nothingElseOrphaned},
	{name: "a cluster is moved", run: moved},
	{name: "moved machines stay", run: movedStays},
	{name: "deletion leaves no objects", run: demoDeleted},
	{name: "unused images are deleted", run: imagesCollected},
}

// TestScenes runs all scenes in one world, and checks that no objects are left on hosts.
func TestScenes(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	w := newWorld(ctx, t, g)
	w.hostsReady(ctx, g)
	t.Run("parallel", func(t *testing.T) {
		// t.Parallel is limited by the number of processors, but scenes mostly wait.
		var group errgroup.Group
		group.SetLimit(maxParallel)
		for _, scene := range parallel {
			group.Go(func() error {
				t.Run(scene.name, scene.test(ctx, w))
				return nil
			})
		}
		_ = group.Wait() // the tests report failures
	})
	for _, scene := range sequential {
		if t.Failed() {
			return
		}
		t.Run(scene.name, scene.test(ctx, w))
	}
	w.nothingLeft(g)
	w.grantsUsed(ctx, t, g)
}
