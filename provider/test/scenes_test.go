package test

import (
	"context"
	"flag"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
)

// scene is what is done with a world and holds afterwards. It waits by itself for what it needs, and
// leaves nothing on hosts.
type scene struct {
	name string
	run  func(ctx context.Context, g *WithT, w *world)
	// more says that the scene is played with -scenes.all only.
	more bool
}

// all has all scenes played. Each has a cluster with an API server of its own, and all of them at once are more
// than two processors can do beside the other tests.
var all = flag.Bool("scenes.all", false, "play all scenes, also those that two processors have no time for beside other tests")

// played are those of some scenes that are to be played.
func played(scenes []scene) []scene {
	return slices.DeleteFunc(slices.Clone(scenes), func(s scene) bool { return s.more && !*all })
}

// beside are scenes that don't notice each other: each has a cluster and a namespace of its own. They
// run at the same time, the longest one first.
var beside = []scene{
	{name: "a host is cut off for minutes", run: hostCutOff, more: true},
	{name: "a load balancer's life", run: balancerLife, more: true},
	{name: "a deployment's life", run: deploymentLife},
	{name: "a host is maintained", run: hostMaintained, more: true},
	{name: "addresses from pools", run: addressesLife, more: true},
	{name: "a machine pool's life", run: poolLife},
	{name: "a topology's life", run: topologyLife},
	{name: "a machine is updated in place", run: updatedInPlace, more: true},
	{name: "orphans are collected", run: orphansCollected, more: true},
	{name: "hardware", run: hardware},
	{name: "a host's key is pinned", run: hostKeyPinned},
	{name: "a second management cluster is started", run: secondStarted},
}

// scenesAtOnce is how many scenes are played at the same time: with more, the guests that boot leave little of
// two processors to the management cluster.
const scenesAtOnce = 6

// alone are scenes that others would notice. They come afterwards, one by one, and go on with the
// cluster of the first scene until the last of them deletes it.
var alone = []scene{
	{name: "libvirtd is killed and started again", run: daemonKilled},
	{name: "nothing else was taken for an orphan", run: nothingElseOrphaned, more: true},
	{name: "a cluster is moved", run: moved},
	{name: "what was moved stays", run: movedStays, more: true},
	{name: "deletion leaves nothing", run: demoDeleted},
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
		for _, scene := range played(beside) {
			group.Go(func() error {
				t.Run(scene.name, func(t *testing.T) { scene.run(ctx, NewWithT(t), w) })
				return nil
			})
		}
		_ = group.Wait() // failures are the tests'
	})
	for _, scene := range played(alone) {
		if t.Failed() {
			return
		}
		t.Run(scene.name, func(t *testing.T) { scene.run(ctx, NewWithT(t), w) })
	}
	w.nothingLeft(g)
}
