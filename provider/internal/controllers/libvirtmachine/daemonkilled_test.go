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
	everyCall   = flag.Bool("daemon.every", false, "kill libvirtd around every call of a machine's life instead of the first call of each kind")
	daemonSeeds = flag.Int("daemon.seeds", 1, "number of lives in which libvirtd is killed at random times")
	daemons     = flag.Int("daemon.count", 3, "number of concurrent daemons")
)

// moment is when a daemon is killed in a machine's life.
type moment struct {
	life int
	// call is the name of a call, and nth its number among the calls of that name, from 0.
	call string
	nth  int
	// done is true if the call is executed first. Its answer is lost.
	done bool
}

func (m moment) String() string {
	return fmt.Sprintf("life %d, %s %s %d", m.life, map[bool]string{false: "before", true: "after"}[m.done], m.call, m.nth)
}

// killAt kills the daemon once at a moment, and returns whether it was killed.
func (o *daemonWorld) killAt(at moment) *atomic.Bool {
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

// lookUps are polling calls, which are more frequent in some lives than in others.
const lookUps = "libvirt: look up volume"

// moments returns the moments of a life with these calls: around every call, or around the first one of each kind that
// isn't known from another life.
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

// TestDaemonKilledAroundEachCall kills a real libvirtd with signal 9 around the calls of a machine's life: before the
// call, or after it with its answer lost. The restarted daemon finds the running guest, and the end is always the same.
// By default each kind of call has one such moment.
func TestDaemonKilledAroundEachCall(t *testing.T) {
	pool := newDaemons(t)
	url, sum := imageFolder(t)
	var all []moment
	known := map[string]bool{}
	for life := range lives {
		pool.with(t, fmt.Sprintf("life %d", life), func(t *testing.T, daemon *killableDaemon) {
			o := newDaemonWorld(t, daemon, life, url, sum)
			o.runLife()
			t.Logf("%d calls: %v", len(o.calls()), o.calls())
			all = append(all, moments(life, o.calls(), *everyCall, known)...)
		})
	}
	var group sync.WaitGroup
	for _, at := range all {
		group.Go(func() {
			pool.with(t, at.String(), func(t *testing.T, daemon *killableDaemon) {
				o := newDaemonWorld(t, daemon, at.life, url, sum)
				killed := o.killAt(at)
				o.runLife()
				switch {
				case killed.Load():
				case at.call == lookUps && at.nth > 0:
					t.Log("The life had no such moment: it had fewer polling calls")
				default:
					t.Error("the life had no such moment")
				}
			})
		})
	}
	group.Wait()
}

// TestDaemonKilledAtRandom kills a real libvirtd repeatedly in a machine's life, at any time, also during a call.
func TestDaemonKilledAtRandom(t *testing.T) {
	pool := newDaemons(t)
	url, sum := imageFolder(t)
	var group sync.WaitGroup
	for seed := range *daemonSeeds {
		group.Go(func() {
			pool.with(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, daemon *killableDaemon) {
				random := rand.New(rand.NewPCG(uint64(seed), 2))
				o := newDaemonWorld(t, daemon, seed%len(lives), url, sum)
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
				o.runLife()
			})
		})
	}
	group.Wait()
}

// daemonPool is a pool of daemons, each of which one test uses at a time.
type daemonPool chan *killableDaemon

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

// with runs a test with a daemon whose host is empty. A daemon with which a test has failed isn't used again.
func (p daemonPool) with(t *testing.T, name string, test func(*testing.T, *killableDaemon)) {
	daemon := <-p
	defer func() { p <- daemon }()
	passed := t.Run(name, func(t *testing.T) {
		g := NewWithT(t)
		if daemon == nil {
			var err error
			daemon, err = newKillableDaemon()
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
