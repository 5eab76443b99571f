package move_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
)

// worldOf returns the world of a scenario without a cluster. It has all kinds of the providers' groups.
func worldOf(s *scenario) *move.World {
	world := &move.World{Source: "a scenario", Kinds: move.KindsOf()}
	uids := map[*scenarioObject]types.UID{}
	for i, m := range s.objects {
		uids[m] = types.UID(fmt.Sprintf("u%d", i))
	}
	for _, m := range s.objects {
		o := move.FromUnstructured(m.Unstructured, manifest.Place{})
		o.UID = uids[m]
		for _, owner := range m.owners {
			o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: uids[owner]})
		}
		if m.missingOwner != "" {
			o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: coreAPI, Kind: m.missingOwner, Name: "ghost", UID: "ghost-" + uids[m]})
		}
		gk := o.GroupKind()
		hierarchy := gk.Group == "cluster.x-k8s.io" && (gk.Kind == "Cluster" || gk.Kind == "ClusterClass") || gk.Kind == "ClusterResourceSet"
		if gk.Group != "" && o.APIVersion != hiddenAPI {
			world.Kinds[gk] = move.Kind{GroupKind: gk, ClusterScoped: o.Namespace == "", Move: hierarchy, MoveHierarchy: hierarchy}
		}
		world.Objects = append(world.Objects, o)
	}
	return world
}

// TestMembers checks that the members are the objects of the plan with their fates, each once, and owners that
// don't exist, and that owners are created in an earlier step than the objects that they own.
func TestMembers(t *testing.T) {
	seen := map[move.Fate]int{}
	for seed := range 60 {
		s := newScenario(seed, "members")
		g := move.Discover(t.Context(), worldOf(s), s.space)
		plan := g.Plan()
		want := map[manifest.Object]move.Fate{}
		for _, group := range plan.Groups {
			for _, m := range group {
				want[m.Object] = move.FateMoved
				if !m.Deleted {
					want[m.Object] = move.FateCopied
				}
			}
		}
		for _, l := range plan.LeftBehind {
			want[l.Object] = move.FateLeft
		}
		for _, l := range plan.Apart {
			want[l.Object] = move.FateApart
		}
		members := g.Members(plan)
		got := map[manifest.Object]move.Fate{}
		for i, m := range members {
			seen[m.Fate]++
			for _, owner := range m.Owners {
				if owner.At < 0 || owner.At >= len(members) {
					t.Fatalf("seed %d: %s has the owner %d of %d members", seed, m.Object, owner.At, len(members))
				}
				if of := members[owner.At]; m.Step > 0 && of.Step >= m.Step && owner.At != i {
					t.Errorf("seed %d: %s is created in step %d, but its owner %s in step %d", seed, m.Object, m.Step, of.Object, of.Step)
				}
			}
			if m.Fate == move.FateAbsent {
				continue
			}
			if _, twice := got[m.Object]; twice {
				t.Errorf("seed %d: %s is a member twice", seed, m.Object)
			}
			got[m.Object] = m.Fate
			if m.Why == "" {
				t.Errorf("seed %d: %s has no reason", seed, m.Object)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d (-plan +members):\n%s", seed, diff)
		}
		// Each owner reference of an object is in the members.
		links, owners := 0, 0
		for _, n := range g.Nodes {
			links += len(n.Owners)
		}
		for _, m := range members {
			for _, owner := range m.Owners {
				if !owner.Soft {
					owners++
				}
			}
		}
		if owners < links {
			t.Errorf("seed %d: the members have %d owners, want at least %d", seed, owners, links)
		}
		if len(members) < len(g.Nodes) {
			t.Errorf("seed %d: %d members for %d nodes", seed, len(members), len(g.Nodes))
		}
	}
	for _, fate := range []move.Fate{move.FateMoved, move.FateCopied, move.FateLeft, move.FateApart, move.FateAbsent} {
		if seen[fate] == 0 {
			t.Errorf("no scenario has an object that is %s", fate)
		}
	}
}

// TestMembersOfAReplacedOwner checks that an owner that was deleted does not get the fate of the object that
// now has its name.
func TestMembersOfAReplacedOwner(t *testing.T) {
	s := &scenario{}
	identity := s.add(demoAPI, "DemoIdentity", "", "shared", nil)
	identity.label(moveLabel)
	s.add(demoAPI, "DemoMachine", "team", "m", nil)
	world := worldOf(s)
	world.Objects[1].Owners = []metav1.OwnerReference{{APIVersion: demoAPI, Kind: "DemoIdentity", Name: "shared", UID: "deleted"}}
	g := move.Discover(t.Context(), world, "team")
	var got []move.Fate
	for _, m := range g.Members(g.Plan()) {
		if m.Kind == "DemoIdentity" {
			got = append(got, m.Fate)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]move.Fate{move.FateAbsent, move.FateCopied}, got); diff != "" {
		t.Errorf("the fates of the two identities (-want +got):\n%s", diff)
	}
}
