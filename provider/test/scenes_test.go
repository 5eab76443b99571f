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

// beside are scenes that don't notice each other: each has a cluster and a namespace of its own. They
// run at the same time, the longest one first.
var beside = []scene{
	{"a host is cut off for minutes", hostCutOff},
	{"a deployment's life", deploymentLife},
	{"a host is maintained", hostMaintained},
	{"addresses from pools", addressesLife},
	{"a machine pool's life", poolLife},
	{"a topology's life", topologyLife},
	{"a machine is updated in place", updatedInPlace},
	{"orphans are collected", orphansCollected},
	{"hardware", hardware},
	{"a host's key is pinned", hostKeyPinned},
	{"a second management cluster is started", secondStarted},
}

// scenesAtOnce is how many scenes are played at the same time: with more, the guests that boot leave little of
// two processors to the management cluster.
const scenesAtOnce = 6

// alone are scenes that others would notice. They come afterwards, one by one, and go on with the
// cluster of the first scene until the last of them deletes it.
var alone = []scene{
	{"libvirtd is killed and started again", daemonKilled},
	{"nothing else was taken for an orphan", nothingElseOrphaned},
	{"a cluster is moved", moved},
	{"what was moved stays", movedStays},
	{"deletion leaves nothing", demoDeleted},
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
				t.Run(scene.name, func(t *testing.T) { scene.run(ctx, NewWithT(t), w) })
				return nil
			})
		}
		_ = group.Wait() // failures are the tests'
	})
	for _, scene := range alone {
		if t.Failed() {
			return
		}
		t.Run(scene.name, func(t *testing.T) { scene.run(ctx, NewWithT(t), w) })
	}
	w.nothingLeft(g)
}
