package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

const (
	soon = 2 * time.Minute
	uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"
)

// quick are options with milliseconds in place of minutes. Complete readings are rare, so that a test sees changes by
// events.
var quick = fleet.Options{ListInterval: time.Hour, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, CallLimit: time.Minute,
	SettleTime: 2 * time.Millisecond}

// fixture is a fleet of fake hosts.
type fixture struct {
	*WithT
	*fleet.Fleet
	t     *testing.T
	hosts map[string]*fake.Host

	lock sync.Mutex
	// connect opens connections if it is set.
	connect fleet.Connect
	dialed  []fleet.Target

	hostNews, reachability, machineNews *listener
}

// newFixture starts a fleet, stops it at the end of the test, and checks that nothing is left.
func newFixture(t *testing.T, options fleet.Options, hosts ...string) *fixture {
	t.Helper()
	before := gleak.Goroutines()
	f := &fixture{WithT: NewWithT(t), t: t, hosts: map[string]*fake.Host{}}
	for _, host := range hosts {
		f.hosts[host] = fake.NewHost()
	}
	f.Fleet = fleet.New(f.open, options)
	ctx, cancel := context.WithCancel(context.Background())
	f.hostNews, f.reachability, f.machineNews = listen(ctx, f.Hosts()), listen(ctx, f.Reachability()), listen(ctx, f.Machines())
	stopped := make(chan error)
	go func() { stopped <- f.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		f.Eventually(stopped).WithTimeout(soon).Should(Receive(Succeed()))
		for name, host := range f.hosts {
			f.Expect(host.Connections()).To(BeZero(), "connections to %s are still open", name)
		}
		f.Eventually(gleak.Goroutines).WithTimeout(soon).ShouldNot(gleak.HaveLeaked(before))
	})
	return f
}

func (f *fixture) open(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
	f.lock.Lock()
	connect, host := f.connect, f.hosts[target.URI.Host]
	f.dialed = append(f.dialed, target)
	f.lock.Unlock()
	if connect != nil {
		return connect(ctx, target)
	}
	return host.Connect(ctx)
}

func (f *fixture) setConnect(connect fleet.Connect) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.connect = connect
}

func (f *fixture) dials() int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.dialed)
}

func target(host string) fleet.Target {
	return fleet.Target{URI: hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.TLS, Host: host, Path: "/system"},
		Pools: []string{"default"}, Networks: []string{"default"}}
}

// snapshot waits until the snapshot of a host fits, and returns it.
func (f *fixture) snapshot(host string, fits func(g Gomega, snapshot fleet.Snapshot)) fleet.Snapshot {
	f.t.Helper()
	var snapshot fleet.Snapshot
	f.Eventually(func(g Gomega) {
		var exists bool
		snapshot, exists = f.Snapshot(host)
		g.Expect(exists).To(BeTrue())
		fits(g, snapshot)
	}).WithTimeout(soon).WithPolling(time.Millisecond).Should(Succeed())
	return snapshot
}

func reachable(g Gomega, snapshot fleet.Snapshot) {
	g.Expect(snapshot.Reachable).To(BeTrue(), "%v", snapshot.Err)
}

// direct returns a connection to a host outside of the fleet.
func (f *fixture) direct(host string) hypervisor.Hypervisor {
	f.t.Helper()
	connection, err := f.hosts[host].Connect(f.t.Context())
	f.Expect(err).ToNot(HaveOccurred())
	f.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func define(uuid, name string, owner *hypervisor.Owner) hypervisor.Definition {
	metadata := ""
	if owner != nil {
		var err error
		if metadata, err = owner.Metadata(); err != nil {
			panic(err)
		}
	}
	return hypervisor.Definition{UUID: uuid, Name: name, XML: fmt.Sprintf(
		"<domain><name>%s</name><uuid>%s</uuid><metadata>%s</metadata><memory unit='GiB'>1</memory><vcpu>2</vcpu></domain>", name, uuid, metadata)}
}

// listener counts the events of each object.
type listener struct {
	lock  sync.Mutex
	heard map[string]int
}

func listen(ctx context.Context, news <-chan event.GenericEvent) *listener {
	l := &listener{heard: map[string]int{}}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case one := <-news:
				l.lock.Lock()
				l.heard[one.Object.GetNamespace()+"/"+one.Object.GetName()]++
				l.lock.Unlock()
			}
		}
	}()
	return l
}

func (l *listener) of(name string) func() int {
	return func() int {
		l.lock.Lock()
		defer l.lock.Unlock()
		return l.heard[name]
	}
}

func TestSnapshotFollowsTheHost(t *testing.T) {
	f := newFixture(t, quick, "a")
	f.hosts["a"].SetPool(hypervisor.Pool{Name: "idle"})
	ofA := target("a")
	ofA.Pools, ofA.Networks = []string{"default", "idle", "none"}, []string{"default", "none"}
	direct := f.direct("a")
	volume := hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: "image"}, Format: hypervisor.FormatRaw, CapacityBytes: 1}
	_, err := direct.CreateVolume(t.Context(), volume)
	f.Expect(err).ToNot(HaveOccurred())

	_, exists := f.Snapshot("a")
	f.Expect(exists).To(BeFalse())
	_, err = f.Hypervisor("a")
	f.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
	f.Ensure("a", ofA)

	snapshot := f.snapshot("a", reachable)
	f.Expect(snapshot.Taken).ToNot(BeZero())
	f.Expect(snapshot.Err).ToNot(HaveOccurred())
	f.Expect(snapshot.Facts.CPUs).To(BeEquivalentTo(16))
	f.Expect(snapshot.Pools["default"].Active).To(BeTrue())
	f.Expect(snapshot.Pools["default"].Volumes).To(And(HaveLen(1), HaveKey("image")))
	f.Expect(snapshot.Pools["idle"]).To(Equal(fleet.Pool{Pool: hypervisor.Pool{Name: "idle"}}))
	f.Expect(snapshot.Pools["none"].Err).To(MatchError(hypervisor.ErrNotFound))
	f.Expect(snapshot.Networks["default"].Active).To(BeTrue())
	f.Expect(snapshot.Networks["none"].Err).To(MatchError(hypervisor.ErrNotFound))
	f.Expect(snapshot.Domains).To(BeEmpty())
	f.Eventually(f.hostNews.of("/a")).WithTimeout(soon).Should(Equal(1))
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(1))

	// A domain of this provider: only its machine gets an event.
	f.Expect(direct.DefineDomain(t.Context(), define(uuid, "m", &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: "m"}))).To(Succeed())
	f.snapshot("a", func(g Gomega, s fleet.Snapshot) {
		g.Expect(s.Domains[uuid].State).To(Equal(hypervisor.StateShutOff))
	})
	f.Expect(snapshot.Domains).To(BeEmpty(), "a published snapshot was changed")
	f.Expect(direct.StartDomain(t.Context(), uuid)).To(Succeed())
	f.snapshot("a", func(g Gomega, s fleet.Snapshot) {
		g.Expect(s.Domains[uuid].State).To(Equal(hypervisor.StateRunning))
	})
	f.Eventually(f.machineNews.of("n/m")).WithTimeout(soon).Should(BeNumerically(">=", 1))
	f.hosts["a"].RemoveDomain(uuid)
	f.snapshot("a", func(g Gomega, s fleet.Snapshot) { g.Expect(s.Domains).To(BeEmpty()) })
	f.Expect(f.hostNews.of("/a")()).To(Equal(1))

	// A foreign domain: it uses resources of the host.
	f.Expect(direct.DefineDomain(t.Context(), define(uuid, "theirs", nil))).To(Succeed())
	f.Eventually(f.hostNews.of("/a")).WithTimeout(soon).Should(Equal(2))
	f.Expect(f.reachability.of("/a")()).To(Equal(1))

	connection, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())
	f.Expect(connection.Facts(t.Context())).To(Equal(snapshot.Facts))
}

func TestEverythingIsReadAgain(t *testing.T) {
	options := quick
	options.ListInterval = 5 * time.Millisecond
	f := newFixture(t, options, "a")
	f.Ensure("a", target("a"))
	first := f.snapshot("a", reachable)
	f.hosts["a"].SetNetwork(hypervisor.Network{Name: "default"})
	f.hosts["a"].SetFacts(hypervisor.Facts{LibvirtVersion: "10.0.0"})
	second := f.snapshot("a", func(g Gomega, s fleet.Snapshot) {
		g.Expect(s.Networks["default"].Active).To(BeFalse())
		g.Expect(s.Facts.LibvirtVersion).To(Equal("10.0.0"))
	})
	f.Expect(second.Taken).To(BeTemporally(">", first.Taken))
	f.Expect(f.dials()).To(Equal(1))
}

func TestLostConnection(t *testing.T) {
	f := newFixture(t, quick, "a")
	f.Expect(f.direct("a").DefineDomain(t.Context(), define(uuid, "m", &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: "m"}))).To(Succeed())
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	f.Eventually(f.machineNews.of("n/m")).WithTimeout(soon).Should(Equal(1))
	connection, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())

	f.hosts["a"].SetReachable(false)
	f.snapshot("a", func(g Gomega, s fleet.Snapshot) {
		g.Expect(s.Reachable).To(BeFalse())
		g.Expect(s.Err).To(MatchError(hypervisor.ErrUnreachable))
		g.Expect(s.Domains).To(HaveKey(uuid), "the last state stays")
	})
	_, err = f.Hypervisor("a")
	f.Expect(err).To(And(MatchError(hypervisor.ErrUnreachable), MatchError(ContainSubstring("reaching host a"))))
	f.Expect(f.Refresh(t.Context(), "a", uuid)).To(MatchError(hypervisor.ErrUnreachable))
	f.Expect(connection.Close()).To(Succeed())
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(2))
	dials := f.dials()
	f.Eventually(f.dials).WithTimeout(soon).Should(BeNumerically(">", dials+1), "no retry")

	// Changes of an unreachable host are read after the reconnect, and all its machines get an event.
	f.hosts["a"].SetState(uuid, hypervisor.StateCrashed)
	f.hosts["a"].SetReachable(true)
	snapshot := f.snapshot("a", reachable)
	f.Expect(snapshot.Err).ToNot(HaveOccurred())
	f.Expect(snapshot.Domains[uuid].State).To(Equal(hypervisor.StateCrashed))
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(3))
	f.Eventually(f.machineNews.of("n/m")).WithTimeout(soon).Should(Equal(2))
}

// TestFailuresOfASession checks that any failed call makes the host unreachable until a retry succeeds, and that other
// hosts aren't affected.
func TestFailuresOfASession(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"connecting hangs":        {Operation: fake.Connect, Effect: fake.Hang},
		"connecting is refused":   {Operation: fake.Connect, Effect: fake.Fail, Reason: hypervisor.ErrDenied},
		"watching hangs":          {Operation: fake.NewWatch, Effect: fake.Hang},
		"watching fails":          {Operation: fake.NewWatch, Effect: fake.Fail, Reason: hypervisor.ErrOther},
		"the facts hang":          {Operation: fake.Facts, Effect: fake.Hang},
		"the pool disconnects":    {Operation: fake.Pool, Effect: fake.Disconnect},
		"the network disconnects": {Operation: fake.Network, Effect: fake.Disconnect},
		"the list hangs":          {Operation: fake.ListDomains, Effect: fake.Hang},
		"the list fails":          {Operation: fake.ListDomains, Effect: fake.Fail, Reason: hypervisor.ErrOther},
		"a domain hangs":          {Operation: fake.Domain, Effect: fake.Hang},
	} {
		t.Run(name, func(t *testing.T) {
			options := quick
			options.ListInterval, options.CallLimit = 20*time.Millisecond, 250*time.Millisecond
			f := newFixture(t, options, "good", "bad")
			fault.Times = -1
			f.hosts["bad"].Inject(fault)
			f.Ensure("bad", target("bad"))
			f.Ensure("good", target("good"))
			if fault.Operation == fake.Domain {
				f.snapshot("bad", reachable)
				f.Expect(f.direct("bad").DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
				// The first list after the reconnect has the domain.
				f.Eventually(f.dials).WithTimeout(soon).Should(BeNumerically(">", 2))
			} else {
				f.snapshot("bad", func(g Gomega, s fleet.Snapshot) {
					g.Expect(s.Reachable).To(BeFalse())
					g.Expect(s.Err).To(HaveOccurred())
				})
			}
			f.snapshot("good", reachable)
			f.hosts["bad"].ClearFaults()
			f.snapshot("bad", reachable)
			f.Expect(f.reachability.of("/good")()).To(BeNumerically("<=", 1))
		})
	}
}

// TestPoolAndNetworkErrors checks that an unreadable pool or network doesn't make the host unreachable.
func TestPoolAndNetworkErrors(t *testing.T) {
	f := newFixture(t, quick, "a")
	for _, operation := range []fake.Operation{fake.PoolVolumes, fake.Network} {
		f.hosts["a"].Inject(fake.Fault{Operation: operation, Effect: fake.Fail, Reason: hypervisor.ErrDenied, Times: -1})
	}
	f.Ensure("a", target("a"))
	snapshot := f.snapshot("a", reachable)
	f.Expect(snapshot.Pools["default"].Err).To(MatchError(hypervisor.ErrDenied))
	f.Expect(snapshot.Pools["default"].Active).To(BeFalse())
	f.Expect(snapshot.Networks["default"].Err).To(MatchError(hypervisor.ErrDenied))
}

func TestPanics(t *testing.T) {
	f := newFixture(t, quick, "a")
	var once sync.Once
	f.setConnect(func(ctx context.Context, _ fleet.Target) (hypervisor.Hypervisor, error) {
		once.Do(func() { panic("nonsense") })
		return f.hosts["a"].Connect(ctx)
	})
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	f.Expect(f.dials()).To(Equal(2))
}

func TestChangedTarget(t *testing.T) {
	f := newFixture(t, quick, "a", "b")
	f.Expect(f.direct("a").DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	f.Ensure("a", target("a"))
	f.Expect(f.dials()).To(Equal(1), "the same target doesn't reconnect")
	old, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())

	// Another place: the old state is dropped.
	elsewhere := target("b")
	elsewhere.UUID = f.hosts["b"].UUID()
	f.Ensure("a", elsewhere)
	snapshot, _ := f.Snapshot("a")
	f.Expect(snapshot.Domains).To(BeEmpty())
	f.snapshot("a", reachable)
	f.Eventually(func() error { _, err := old.Facts(t.Context()); return err }).WithTimeout(soon).
		Should(MatchError(hypervisor.ErrUnreachable), "the old connection is still open")
}

func TestForget(t *testing.T) {
	f := newFixture(t, quick, "a")
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(1))
	f.Forget("a")
	f.Forget("never there")
	_, exists := f.Snapshot("a")
	f.Expect(exists).To(BeFalse())
	f.Eventually(f.hosts["a"].Connections).WithTimeout(soon).Should(BeZero())
	f.Eventually(f.reachability.of("/a")).WithTimeout(soon).Should(Equal(2))
}

// TestForgetWhileDialing checks that a connection that opens after its host was forgotten is closed, and that its state
// isn't published.
func TestForgetWhileDialing(t *testing.T) {
	f := newFixture(t, quick, "a")
	dialing := make(chan struct{})
	f.setConnect(func(ctx context.Context, _ fleet.Target) (hypervisor.Hypervisor, error) {
		connection, err := f.hosts["a"].Connect(ctx)
		close(dialing)
		<-ctx.Done() // Forget
		return connection, err
	})
	f.Ensure("a", target("a"))
	f.Eventually(dialing).WithTimeout(soon).Should(BeClosed())
	f.Forget("a")
	f.Eventually(f.hosts["a"].Connections).WithTimeout(soon).Should(BeZero())
	_, exists := f.Snapshot("a")
	f.Expect(exists).To(BeFalse())
	f.Expect(f.reachability.of("/a")()).To(BeZero())
}

// TestEventsNeverBlock checks that a session continues without receivers.
func TestEventsNeverBlock(t *testing.T) {
	f := newFixture(t, quick, "a")
	hosts := map[string]*fake.Host{"a": f.hosts["a"]}
	deaf := fleet.New(func(ctx context.Context, target fleet.Target) (hypervisor.Hypervisor, error) {
		return hosts[target.URI.Host].Connect(ctx)
	}, quick)
	machines := deaf.Machines()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- deaf.Start(ctx) }()
	deaf.Ensure("a", target("a"))
	direct := f.direct("a")
	f.Expect(direct.DefineDomain(t.Context(), define(uuid, "m", &hypervisor.Owner{Cluster: "c", Namespace: "n", Name: "m"}))).To(Succeed())
	for _, state := range []hypervisor.DomainState{hypervisor.StateRunning, hypervisor.StatePaused, hypervisor.StateCrashed} {
		f.hosts["a"].SetState(uuid, state)
		f.Eventually(func() hypervisor.DomainState {
			snapshot, _ := deaf.Snapshot("a")
			return snapshot.Domains[uuid].State
		}).WithTimeout(soon).Should(Equal(state))
	}
	f.Expect((<-machines).Object.GetName()).To(Equal("m"))
	cancel()
	f.Eventually(stopped).WithTimeout(soon).Should(Receive(Succeed()))
	f.Expect(deaf.Start(t.Context())).To(MatchError(ContainSubstring("started before")))
	f.Expect(func() { deaf.Hosts() }).To(Panic())
	deaf.Ensure("b", target("b")) // does nothing after the end
}

// silent is a connection without events.
type silent struct{ hypervisor.Hypervisor }

// Watch implements hypervisor.Hypervisor.
func (s silent) Watch(ctx context.Context) (hypervisor.Watch, error) {
	watch, err := s.Hypervisor.Watch(ctx)
	if err != nil {
		return watch, err
	}
	out := make(chan string)
	go func() {
		defer close(out)
		for range watch.Changed { // until the connection is lost
		}
	}()
	return hypervisor.Watch{Domains: watch.Domains, Changed: out}, nil
}

func TestRefresh(t *testing.T) {
	f := newFixture(t, quick, "a")
	f.setConnect(func(ctx context.Context, _ fleet.Target) (hypervisor.Hypervisor, error) {
		connection, err := f.hosts["a"].Connect(ctx)
		return silent{connection}, err
	})
	f.Expect(f.Refresh(t.Context(), "a", uuid)).To(MatchError(hypervisor.ErrUnreachable))
	f.Ensure("a", target("a"))
	f.snapshot("a", reachable)
	connection, err := f.Hypervisor("a")
	f.Expect(err).ToNot(HaveOccurred())
	f.Expect(connection.DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
	domains := func() map[string]hypervisor.Domain {
		snapshot, _ := f.Snapshot("a")
		return snapshot.Domains
	}
	f.Expect(domains()).To(BeEmpty())
	f.Expect(f.Refresh(t.Context(), "a", uuid)).To(Succeed())
	f.Expect(domains()).To(HaveKey(uuid))
	f.Expect(connection.UndefineDomain(t.Context(), uuid)).To(Succeed())
	f.Expect(f.Refresh(t.Context(), "a", uuid)).To(Succeed())
	f.Expect(domains()).To(BeEmpty())
	f.hosts["a"].Inject(fake.Fault{Operation: fake.Domain, Effect: fake.Fail, Reason: hypervisor.ErrDenied})
	f.Expect(f.Refresh(t.Context(), "a", uuid)).To(MatchError(hypervisor.ErrDenied))
}
