package libvirtmachine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

var (
	everyCall   = flag.Bool("daemon.every", false, "kill libvirtd around every call of a machine's life, and not only around the first of each kind")
	daemonSeeds = flag.Int("daemon.seeds", 1, "how many lives libvirtd is killed in at random times")
	daemons     = flag.Int("daemon.count", 3, "how many daemons are there at once")
)

// moment is when a daemon is killed in a machine's life.
type moment struct {
	life int
	// call is the name of a call, and nth which of those it is, from 0.
	call string
	nth  int
	// done says whether the call is carried out first. Its answer is lost.
	done bool
}

func (m moment) String() string {
	return fmt.Sprintf("life %d, %s %s %d", m.life, map[bool]string{false: "before", true: "after"}[m.done], m.call, m.nth)
}

// killAt has the daemon killed at a moment, once, and returns whether it was.
func (o *ofDaemon) killAt(at moment) *atomic.Bool {
	var lock sync.Mutex
	count := 0
	killed := &atomic.Bool{}
	now := func(call string) bool {
		if call != at.call {
			return false
		}
		lock.Lock()
		defer lock.Unlock()
		count++
		return count == at.nth+1
	}
	if at.done {
		o.lost = func(call string, _ int) error {
			if !now(call) {
				return nil
			}
			o.daemon.kill()
			killed.Store(true)
			return &hypervisor.Error{Operation: call, Reason: hypervisor.ErrUnreachable, Cause: errors.New("the daemon was killed")}
		}
		return killed
	}
	o.before = func(call string, _ int) {
		if now(call) {
			o.daemon.kill()
			killed.Store(true)
		}
	}
	return killed
}

// lookUps are calls by which it is looked again and again how far something is, in some lives more often
// than in others.
const lookUps = "libvirt: look up volume"

// moments are those of a life with these calls: around every one, or around the first one of each kind
// that isn't known from another life.
func moments(life int, calls []string, every bool, known map[string]bool) (all []moment) {
	seen := map[string]int{}
	for _, call := range calls {
		if !strings.HasPrefix(call, "libvirt: ") {
			continue
		}
		nth := seen[call]
		seen[call]++
		switch {
		case every:
			all = append(all, moment{life, call, nth, false}, moment{life, call, nth, true})
		case nth == 0 && !known[call]:
			known[call] = true
			all = append(all, moment{life, call, nth, len(seen)%2 == 0})
		}
	}
	return all
}

// TestDaemonKilledAroundEachCall kills a real libvirtd with signal 9 around the calls of a machine's
// life: before the call, or after it with its answer lost. It is started again soon, finds the guest that
// has run on, and the end is always the same. By default each kind of call has one such moment.
func TestDaemonKilledAroundEachCall(t *testing.T) {
	pool := newDaemons(t)
	url, sum := imageFolder(t)
	var all []moment
	known := map[string]bool{}
	for life := range lives {
		pool.with(t, fmt.Sprintf("life %d", life), func(t *testing.T, daemon *mortal) {
			o := newOfDaemon(t, daemon, life, url, sum)
			o.whole()
			t.Logf("%d calls: %v", len(o.calls()), o.calls())
			all = append(all, moments(life, o.calls(), *everyCall, known)...)
		})
	}
	var group sync.WaitGroup
	for _, at := range all {
		group.Go(func() {
			pool.with(t, at.String(), func(t *testing.T, daemon *mortal) {
				o := newOfDaemon(t, daemon, at.life, url, sum)
				killed := o.killAt(at)
				o.whole()
				switch {
				case killed.Load():
				case at.call == lookUps && at.nth > 0:
					t.Log("The life had no such moment: it looked less often")
				default:
					t.Error("the life had no such moment")
				}
			})
		})
	}
	group.Wait()
}

// TestDaemonKilledAtRandom kills a real libvirtd again and again in a machine's life, at any time, also
// while a call is carried out.
func TestDaemonKilledAtRandom(t *testing.T) {
	pool := newDaemons(t)
	url, sum := imageFolder(t)
	var group sync.WaitGroup
	for seed := range *daemonSeeds {
		group.Go(func() {
			pool.with(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, daemon *mortal) {
				random := rand.New(rand.NewPCG(uint64(seed), 2))
				o := newOfDaemon(t, daemon, seed%len(lives), url, sum)
				end := make(chan struct{})
				var killer sync.WaitGroup
				killer.Go(func() {
					for range 1 + random.IntN(5) {
						select {
						case <-end:
							return
						case <-time.After(time.Duration(random.IntN(1500)) * time.Millisecond):
							daemon.kill()
						}
					}
				})
				defer func() {
					close(end)
					killer.Wait()
					t.Logf("libvirtd was killed %d times", daemon.kills)
				}()
				o.whole()
			})
		})
	}
	group.Wait()
}

// daemonPool is some daemons, each of which one test uses at a time.
type daemonPool chan *mortal

func newDaemons(t *testing.T) daemonPool {
	t.Helper()
	libvirtd.Need(t)
	pool := make(daemonPool, *daemons)
	t.Cleanup(func() {
		for range *daemons {
			if daemon := <-pool; daemon != nil {
				NewWithT(t).Expect(daemon.end()).To(Succeed())
			}
		}
	})
	for range *daemons {
		pool <- nil
	}
	return pool
}

// with runs a test with a daemon whose host is empty. One that a test has failed with isn't used again.
func (p daemonPool) with(t *testing.T, name string, test func(*testing.T, *mortal)) {
	daemon := <-p
	defer func() { p <- daemon }()
	passed := t.Run(name, func(t *testing.T) {
		g := NewWithT(t)
		if daemon == nil {
			var err error
			daemon, err = newMortal()
			g.Expect(err).ToNot(HaveOccurred())
		}
		daemon.kills = 0
		t.Cleanup(func() { g.Expect(daemon.calm(daemon.removeImages)).To(Succeed()) })
		test(t, daemon)
	})
	if !passed && daemon != nil {
		NewWithT(t).Expect(daemon.end()).To(Succeed())
		daemon = nil
	}
}
