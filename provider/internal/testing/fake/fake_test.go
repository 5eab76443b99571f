package fake_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/hypervisortest"
)

const uuid = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b11"

func define(uuid, name string, owner *hypervisor.Owner, disks ...hypervisor.VolumeRef) hypervisor.Definition {
	metadata := ""
	if owner != nil {
		var err error
		if metadata, err = owner.Metadata(); err != nil {
			panic(err)
		}
	}
	devices := ""
	for _, disk := range disks {
		devices += fmt.Sprintf("<disk type='volume'><source pool='%s' volume='%s'/></disk>", disk.Pool, disk.Name)
	}
	return hypervisor.Definition{UUID: uuid, Name: name, XML: fmt.Sprintf("<domain><name>%s</name><uuid>%s</uuid><metadata>%s</metadata>"+
		"<memory unit='MiB'>64</memory><vcpu>1</vcpu><devices>%s</devices></domain>", name, uuid, metadata, devices)}
}

func TestContract(t *testing.T) {
	hypervisortest.Contract(t, func(*testing.T) hypervisortest.Fixture {
		host := fake.NewHost()
		return hypervisortest.Fixture{Connect: host.Connect, Pool: "default", Network: "default", Folder: "/fake", Define: define, HasConsoleLog: func(path string) bool { return slices.Contains(host.ConsoleLogs(), path) },
			Freeze: func() (func(), error) { return host.Freeze(), nil },
			ConnectWithLimit: func(ctx context.Context, limit time.Duration) (hypervisor.Hypervisor, error) {
				host.SetCallLimit(limit)
				defer host.SetCallLimit(time.Minute)
				return host.Connect(ctx)
			},
			PutFile: func(name string, content []byte) error {
				host.PutFile(hypervisor.VolumeRef{Pool: "default", Name: name}, content)
				return nil
			}}
	})
}

// connected returns a host with a running domain, and a connection to it.
func connected(t *testing.T) (*fake.Host, hypervisor.Hypervisor) {
	t.Helper()
	g := NewWithT(t)
	host := fake.NewHost()
	connection, err := host.Connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(connection.DefineDomain(t.Context(), define(uuid, "m", nil))).To(Succeed())
	g.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
	host.ForgetCalls()
	return host, connection
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		fault fake.Fault
		// want has the reasons of three calls to StopDomain, nil for success.
		want [3]error
		// stopped says that the first call stopped the domain.
		stopped bool
	}{
		"fails once": {
			fault: fake.Fault{Operation: fake.StopDomain, Effect: fake.Fail, Reason: hypervisor.ErrBusy},
			want:  [3]error{hypervisor.ErrBusy},
		},
		"fails after it was done": {
			fault: fake.Fault{Operation: fake.StopDomain, Effect: fake.Fail, Reason: hypervisor.ErrTimeout, AfterDone: true},
			want:  [3]error{hypervisor.ErrTimeout}, stopped: true,
		},
		"fails the second time": {
			fault: fake.Fault{Operation: fake.StopDomain, Object: uuid, Skip: 1, Effect: fake.Fail, Reason: hypervisor.ErrOther},
			want:  [3]error{nil, hypervisor.ErrOther}, stopped: true,
		},
		"fails always": {
			fault: fake.Fault{Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrDenied},
			want:  [3]error{hypervisor.ErrDenied, hypervisor.ErrDenied, hypervisor.ErrDenied},
		},
		"of another call": {
			fault:   fake.Fault{Operation: fake.StartDomain, Effect: fake.Fail, Reason: hypervisor.ErrDenied},
			stopped: true,
		},
		"of another object": {
			fault:   fake.Fault{Object: "x", Effect: fake.Fail, Reason: hypervisor.ErrDenied},
			stopped: true,
		},
		"loses the connection": {
			fault: fake.Fault{Operation: fake.StopDomain, Effect: fake.Disconnect},
			want:  [3]error{hypervisor.ErrUnreachable, hypervisor.ErrUnreachable, hypervisor.ErrUnreachable},
		},
		"loses the connection after it was done": {
			fault: fake.Fault{Operation: fake.StopDomain, Effect: fake.Disconnect, AfterDone: true},
			want:  [3]error{hypervisor.ErrUnreachable, hypervisor.ErrUnreachable, hypervisor.ErrUnreachable}, stopped: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host, connection := connected(t)
			host.Inject(test.fault)
			for i, want := range test.want {
				err := connection.StopDomain(t.Context(), uuid)
				if want == nil {
					g.Expect(err).ToNot(HaveOccurred(), "call %d", i)
				} else {
					g.Expect(err).To(MatchError(want), "call %d", i)
				}
				if i == 0 {
					g.Expect(host.State(uuid).Active()).To(Equal(!test.stopped))
				}
			}
		})
	}
}

func TestHang(t *testing.T) {
	for _, afterDone := range []bool{false, true} {
		t.Run(fmt.Sprintf("after done: %v", afterDone), func(t *testing.T) {
			g := NewWithT(t)
			host, connection := connected(t)
			host.Inject(fake.Fault{Operation: fake.StopDomain, Effect: fake.Hang, AfterDone: afterDone, Times: 2})
			for _, end := range []struct {
				how  func(cancel context.CancelFunc)
				want error
			}{
				{func(cancel context.CancelFunc) { cancel() }, hypervisor.ErrTimeout},
				{func(context.CancelFunc) { _ = connection.Close() }, hypervisor.ErrUnreachable},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				result := make(chan error)
				before := len(host.Calls())
				go func() { result <- connection.StopDomain(ctx, uuid) }()
				g.Eventually(host.Calls).WithTimeout(time.Minute).Should(HaveLen(before + 1))
				g.Consistently(result, "20ms").ShouldNot(Receive())
				end.how(cancel)
				g.Expect(<-result).To(MatchError(end.want))
				cancel()
			}
			g.Expect(host.State(uuid).Active()).To(Equal(!afterDone))
		})
	}
}

func TestReachable(t *testing.T) {
	g := NewWithT(t)
	host, connection := connected(t)
	watch, err := connection.Watch(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	host.SetReachable(false)
	g.Eventually(watch.Changed).WithTimeout(time.Minute).Should(BeClosed())
	g.Expect(connection.StopDomain(t.Context(), uuid)).To(MatchError(hypervisor.ErrUnreachable))
	_, err = host.Connect(t.Context())
	g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))

	host.SetReachable(true)
	g.Expect(connection.StopDomain(t.Context(), uuid)).To(MatchError(hypervisor.ErrUnreachable), "a lost connection stays lost")
	again, err := host.Connect(t.Context())
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(again.StopDomain(t.Context(), uuid)).To(Succeed())
}

func TestCalls(t *testing.T) {
	g := NewWithT(t)
	host, connection := connected(t)
	ref := hypervisor.VolumeRef{Pool: "default", Name: "v"}
	g.Expect(connection.StopDomain(t.Context(), uuid)).To(Succeed())
	g.Expect(connection.DeleteVolume(t.Context(), ref)).ToNot(Succeed())
	calls := host.Calls()
	g.Expect(calls).To(HaveLen(2))
	g.Expect(calls[0]).To(Equal(fake.Call{Operation: fake.StopDomain, Object: uuid}))
	g.Expect(calls[1].Operation).To(Equal(fake.DeleteVolume))
	g.Expect(calls[1].Object).To(Equal("default/v"))
	g.Expect(calls[1].Err).To(MatchError("deleting the volume default/v: not found"))
	host.ForgetCalls()
	g.Expect(host.Calls()).To(BeEmpty())
}

func TestGuestActions(t *testing.T) {
	g := NewWithT(t)
	host, connection := connected(t)
	seed := hypervisor.VolumeRef{Pool: "default", Name: "seed"}
	_, err := connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: seed, Format: hypervisor.FormatRaw, CapacityBytes: 1})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(connection.StopDomain(t.Context(), uuid)).To(Succeed())
	g.Expect(connection.DefineDomain(t.Context(), define(uuid, "m", nil, seed))).To(Succeed())
	g.Expect(connection.StartDomain(t.Context(), uuid)).To(Succeed())
	watch, err := connection.Watch(t.Context())
	g.Expect(err).ToNot(HaveOccurred())

	host.HoldDisk(uuid, seed, true)
	g.Expect(connection.DetachDisk(t.Context(), uuid, seed)).To(MatchError(hypervisor.ErrBusy))
	host.HoldDisk(uuid, seed, false)
	g.Expect(connection.DetachDisk(t.Context(), uuid, seed)).To(Succeed())
	g.Eventually(watch.Changed).WithTimeout(time.Minute).Should(Receive(Equal(uuid)))

	address := hypervisor.InterfaceAddress{MAC: "52:54:00:00:00:01", Address: netip.MustParseAddr("192.0.2.1")}
	host.SetAddresses(uuid, hypervisor.SourceAgent, address)
	g.Expect(connection.Addresses(t.Context(), uuid, hypervisor.SourceAgent)).To(Equal([]hypervisor.InterfaceAddress{address}))

	host.SetState(uuid, hypervisor.StateCrashed)
	g.Eventually(watch.Changed).WithTimeout(time.Minute).Should(Receive(Equal(uuid)))
	g.Expect(host.State(uuid)).To(Equal(hypervisor.StateCrashed))
	host.RemoveDomain(uuid)
	g.Eventually(watch.Changed).WithTimeout(time.Minute).Should(Receive(Equal(uuid)))
	g.Expect(host.State(uuid)).To(BeEmpty())
}

func TestRoomInAPool(t *testing.T) {
	g := NewWithT(t)
	host, connection := connected(t)
	host.SetPool(hypervisor.Pool{Name: "small", Active: true, CapacityBytes: 10, AvailableBytes: 10})
	ref := hypervisor.VolumeRef{Pool: "small", Name: "v"}
	available := func() int64 {
		pool, err := connection.Pool(t.Context(), "small")
		g.Expect(err).ToNot(HaveOccurred())
		return pool.AvailableBytes
	}
	_, err := connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: 100})
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(connection.UploadVolume(t.Context(), ref, bytes.NewReader(make([]byte, 11)), 11)).To(MatchError(hypervisor.ErrNoSpace))
	g.Expect(available()).To(BeEquivalentTo(10))
	g.Expect(connection.UploadVolume(t.Context(), ref, bytes.NewReader([]byte("12345678")), 8)).To(Succeed())
	g.Expect(available()).To(BeEquivalentTo(2))
	g.Expect(host.Content(ref)).To(Equal([]byte("12345678")))
	_, err = connection.CloneVolume(t.Context(), hypervisor.VolumeSpec{
		VolumeRef: hypervisor.VolumeRef{Pool: "small", Name: "w"}, Format: hypervisor.FormatRaw, CapacityBytes: 1}, ref)
	g.Expect(err).To(MatchError(hypervisor.ErrNoSpace))
	volumes, domains := host.Left()
	g.Expect(volumes).To(Equal([]hypervisor.VolumeRef{ref}))
	g.Expect(domains).To(Equal([]string{uuid}))
	g.Expect(connection.DeleteVolume(t.Context(), ref)).To(Succeed())
	g.Expect(available()).To(BeEquivalentTo(10))
}

func TestInjectRefuses(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"no effect":          {},
		"failure, no reason": {Effect: fake.Fail},
		"hang with a reason": {Effect: fake.Hang, Reason: hypervisor.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(func() { fake.NewHost().Inject(fault) }).To(Panic())
		})
	}
}
