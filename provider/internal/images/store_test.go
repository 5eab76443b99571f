package images

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/metrics"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/metricstest"
)

func TestImageIsTransferredOnce(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	metrics.AddHost("one")
	defer metrics.RemoveHost("one")
	content := qcow2Image(nil)
	var served atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		serving(content)(w, r)
	})
	wish := wishFor(server.URL+"/image.qcow2", content)

	// Concurrent requests of many machines: each machine that doesn't get the image is reconciled again.
	errs := make([]error, 20)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = f.Ensure(t.Context(), wish, machine(i)) })
	}
	all.Wait()
	waiting := map[types.NamespacedName]bool{}
	for i, err := range errs {
		if err != nil { // otherwise the request came after the transfer
			var transferring *Transferring
			f.Expect(errors.As(err, &transferring)).To(BeTrue(), "%v", err)
			waiting[machine(i)] = true
		}
	}
	for len(waiting) > 0 {
		waiter := f.next().NamespacedName
		f.Expect(waiting).To(HaveKey(waiter))
		delete(waiting, waiter)
	}
	image, err := f.Ensure(t.Context(), wish, machine(0))
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(image.CapacityBytes).To(BeEquivalentTo(diskBytes))
	f.Expect(image.Format).To(Equal(hypervisor.FormatQCOW2))
	f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(content))
	f.Expect(f.volumes("one")).To(Equal(whole(wish)))

	f.fakes.hosts["one"].ForgetCalls()
	f.Expect(f.Ensure(t.Context(), wish, machine(1))).To(Equal(image))
	calls := slices.DeleteFunc(f.fakes.hosts["one"].Calls(), func(call fake.Call) bool { return call.Operation == fake.Facts }) // by the fixture
	f.Expect(calls).To(HaveLen(2), "calls for an image that exists")
	f.Expect(served.Load()).To(BeEquivalentTo(1))
	f.Expect(f.tasks).To(BeEmpty())
	for name, want := range map[string]float64{"caplv_image_transfers_total": 1, "caplv_image_transfers_running": 0, "caplv_image_transferred_bytes_total": float64(len(content))} {
		_, counted := metricstest.Count(f, name, "host", "one")
		f.Expect(counted).To(Equal(want), name)
	}
}

// slowVolume is a host that delays its answer for a volume.
type slowVolume struct {
	hypervisor.Hypervisor
	asked, may chan struct{}
}

func (h slowVolume) Volume(ctx context.Context, ref hypervisor.VolumeRef) (hypervisor.Volume, error) {
	volume, err := h.Hypervisor.Volume(ctx, ref)
	close(h.asked)
	<-h.may
	return volume, err
}

// TestConcurrentTransferOfTheSameImage checks that a machine that was told that an image is missing gets it without a
// second download if another transfer has finished since. Metrics count one transfer.
func TestConcurrentTransferOfTheSameImage(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	metrics.AddHost("one")
	defer metrics.RemoveHost("one")
	content := qcow2Image(nil)
	var served atomic.Int32
	wish := wishFor(serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		serving(content)(w, r)
	}).URL, content)

	slow := slowVolume{asked: make(chan struct{}), may: make(chan struct{})}
	var once sync.Once
	hosts := f.hosts
	f.hosts = func(name string) (hypervisor.Hypervisor, error) {
		host, err := hosts(name)
		once.Do(func() {
			slow.Hypervisor = host
			host = slow
		})
		return host, err
	}
	late := make(chan error)
	go func() {
		_, err := f.Ensure(t.Context(), wish, machine(1))
		late <- err
	}()
	<-slow.asked
	image := f.eventually(wish, machine(2))
	close(slow.may)

	var transferring *Transferring
	f.Expect(errors.As(<-late, &transferring)).To(BeTrue())
	f.Expect(f.next().NamespacedName).To(Equal(machine(1)))
	f.Expect(f.Ensure(t.Context(), wish, machine(1))).To(Equal(image))
	f.Expect(served.Load()).To(BeEquivalentTo(1))
	_, transfers := metricstest.Count(f, "caplv_image_transfers_total", "host", "one")
	f.Expect(transfers).To(BeEquivalentTo(1))
	f.Expect(f.volumes("one")).To(Equal(whole(wish)))
}

func TestRawImage(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	content := bytes.Repeat([]byte("raw disk"), 3000)
	wish := wishFor(serve(t, serving(content)).URL, content)
	wish.Format = infrav1.ImageFormatRaw
	image := f.eventually(wish, machine(1))
	f.Expect(image.CapacityBytes).To(BeEquivalentTo(len(content)))
	f.Expect(image.Format).To(Equal(hypervisor.FormatRaw))
	f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(content))
}

// TestServersThatFail checks that errors name the problem, that nothing stays on the host, and that the image is
// transferred when the server works again.
func TestServersThatFail(t *testing.T) {
	good := qcow2Image(nil)
	length := func(w http.ResponseWriter, size int) { w.Header().Set("Content-Length", strconv.Itoa(size)) }
	for _, tc := range []struct {
		name    string
		serve   http.HandlerFunc
		message string
		is      error
		content []byte
	}{
		{name: "not found", serve: http.NotFound, message: "the server answers 404 Not Found"},
		{name: "broken", serve: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, message: "the server answers 502 Bad Gateway"},
		{name: "another image", serve: serving(qcow2Image(func(header []byte) { header[103] = 1 })), is: ErrChecksumMismatch, message: "the served file has "},
		{name: "cut off", message: "unexpected EOF", serve: func(w http.ResponseWriter, _ *http.Request) {
			length(w, len(good))
			_, _ = w.Write(good[:len(good)/2])
			panic(http.ErrAbortHandler)
		}},
		{name: "cut off at once", message: "EOF", serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{name: "shorter than it says", message: "unexpected EOF", serve: func(w http.ResponseWriter, _ *http.Request) {
			length(w, len(good)+1)
			_, _ = w.Write(good)
		}},
		{name: "longer than it says", is: ErrChecksumMismatch, serve: func(w http.ResponseWriter, _ *http.Request) {
			length(w, len(good)-1)
			_, _ = w.Write(good[:len(good)-1])
		}},
		{name: "no length", message: "doesn't send the size", serve: func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = w.Write(good)
		}},
		{name: "silent", message: "the server was silent for", serve: func(w http.ResponseWriter, r *http.Request) {
			length(w, len(good))
			_, _ = w.Write(good[:len(good)/2])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}},
		{name: "a byte now and then", message: ", and must send 64Ki a second", serve: func(w http.ResponseWriter, r *http.Request) {
			length(w, len(good))
			for i := 0; r.Context().Err() == nil && i < len(good); i++ {
				_, _ = w.Write(good[i : i+1])
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}},
		{name: "silent from the start", message: "the server was silent for", serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{name: "empty", is: ErrNotAnImage, message: "it is empty", serve: serving(nil)},
		{name: "a page", is: ErrNotAnImage, message: "this isn't", serve: serving([]byte("<html>" + strings.Repeat("Welcome! ", 100)))},
		{name: "tiny", is: ErrNotAnImage, message: "this isn't", serve: serving([]byte("x"))},
		{name: "compressed, it seems", is: ErrNotAnImage, message: "decompressing it with gzip", serve: serving([]byte("\x1f\x8b" + strings.Repeat("x", 200)))},
		{name: "compressed on the way", is: ErrNotAnImage, message: "header Content-Encoding", serve: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			serving(good)(w, r)
		}},
		{name: "too large", is: ErrNotAnImage, message: "at most 1Mi are allowed", serve: serving(append(slices.Clone(good), make([]byte, 1<<20)...))},
		{name: "redirected for ever", message: "more than 10 redirects", serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/again", http.StatusFound)
		}},
		{name: "redirected elsewhere", message: "redirected to a scheme other than https and http", serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}},
		{name: "a backing file", is: ErrNotAnImage, message: "it has a backing file", serve: serving(qcow2Image(func(h []byte) { h[15] = 104 }))},
		{name: "data elsewhere", is: ErrNotAnImage, message: "its data is in another file", serve: serving(qcow2Image(func(h []byte) { h[79] = 4 }))},
		{name: "encrypted", is: ErrNotAnImage, message: "it is encrypted", serve: serving(qcow2Image(func(h []byte) { h[35] = 2 }))},
		{name: "of the future", is: ErrNotAnImage, message: "version 4", serve: serving(qcow2Image(func(h []byte) { h[7] = 4 }))},
		{name: "an endless disk", is: ErrNotAnImage, message: "its disk has", serve: serving(qcow2Image(func(h []byte) { binary.BigEndian.PutUint64(h[24:], 1<<63) }))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{MaxBytes: 1 << 20, IdleTimeout: 400 * time.Millisecond})
			var better atomic.Bool
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if better.Load() {
					serving(good)(w, r)
					return
				}
				tc.serve(w, r)
			})
			wish := wishFor(server.URL+"/image.qcow2?token=hush", good)
			err := f.failure(wish, machine(1))
			f.Expect(err).To(MatchError(And(ContainSubstring(tc.message), ContainSubstring(server.URL+"/image.qcow2"), Not(ContainSubstring("hush")))))
			if tc.is != nil {
				f.Expect(err).To(MatchError(tc.is))
			}
			better.Store(true)
			f.eventually(wish, machine(1))
			f.Expect(f.volumes("one")).To(Equal(whole(wish)))
		})
	}
}

func TestErrorsShowNoCredentials(t *testing.T) {
	g := NewWithT(t)
	f := newFixture(t, newHosts("one"), Options{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		g.Expect(r.Header).ToNot(HaveKey("Referer"))
		http.Redirect(w, r, "http://127.0.0.1:1/elsewhere?signature=hush", http.StatusFound)
	})
	err := f.failure(wishFor(server.URL+"/image?token=hush", nil), machine(1))
	g.Expect(err).To(MatchError(And(ContainSubstring("connection refused"), Not(ContainSubstring("hush")))))
	_, err = f.Ensure(t.Context(), wishFor("http://user:hush@127.0.0.1:1/x?hush#hush", nil), machine(2))
	g.Expect(err).To(MatchError(And(ContainSubstring("http://127.0.0.1:1/x"), Not(ContainSubstring("hush")))))
}

// TestProxy runs this test program again, because a program reads the proxies of its environment once.
func TestProxy(t *testing.T) {
	content := qcow2Image(nil)
	const image = "http://images.invalid/image.qcow2"
	if os.Getenv("HTTP_PROXY") != "" {
		f := newFixture(t, newHosts("one"), Options{})
		f.eventually(wishFor(image, content), machine(1))
		return
	}
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != image {
			http.NotFound(w, r)
			return
		}
		serving(content)(w, r)
	})
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxy$", "-test.v")
	again.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestProxy") {
		t.Errorf("through the proxy: %v\n%s", err, out)
	}
}

// TestHostsThatFail checks a transfer with a fault in each of its calls. In the end the host has the complete image and
// nothing else.
func TestHostsThatFail(t *testing.T) {
	content := qcow2Image(nil)
	server := serve(t, serving(content))
	wish := wishFor(server.URL, content)

	f := newFixture(t, newHosts("one"), Options{})
	f.eventually(wish, machine(1))
	calls := f.fakes.hosts["one"].Calls()
	f.stop()
	for i, call := range calls {
		for _, fault := range []fake.Fault{
			{Effect: fake.Fail, Reason: hypervisor.ErrOther},
			{Effect: fake.Fail, Reason: hypervisor.ErrNoSpace},
			{Effect: fake.Fail, Reason: hypervisor.ErrTimeout, AfterDone: true},
			{Effect: fake.Disconnect},
			{Effect: fake.Disconnect, AfterDone: true},
		} {
			t.Run(strings.Join([]string{strconv.Itoa(i), string(call.Operation), strconv.Itoa(int(fault.Effect)), strconv.FormatBool(fault.AfterDone)}, "-"), func(t *testing.T) {
				f := newFixture(t, newHosts("one"), Options{})
				fault.Skip = i
				f.fakes.hosts["one"].Inject(fault)
				var image Image
				f.Eventually(func() (err error) {
					image, err = f.Ensure(t.Context(), wish, machine(1))
					return err
				}).WithTimeout(patience).Should(Succeed())
				f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(content))
				f.stop()
				f.Expect(f.volumes("one")).To(ContainElements(whole(wish)))
				if call.Operation != fake.PoolVolumes && call.Operation != fake.Connect {
					f.Expect(f.volumes("one")).To(Equal(whole(wish)))
				}
			})
		}
	}
}

func TestDiskFull(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	content := qcow2Image(nil)
	wish := wishFor(serve(t, serving(content)).URL, content)
	f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "default", Active: true, CapacityBytes: 1 << 30, AvailableBytes: 1 << 10})
	err := f.failure(wish, machine(1))
	f.Expect(err).To(MatchError(hypervisor.ErrNoSpace))
	f.Expect(err).To(MatchError(ContainSubstring("larger than the 1Ki that are free")))
	f.Expect(f.volumes("one")).To(BeEmpty())
	f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "default", Active: true, CapacityBytes: 1 << 30, AvailableBytes: 1 << 30})
	f.eventually(wish, machine(1))
}

func TestProgress(t *testing.T) {
	NewWithT(t).Expect(&Transferring{URL: "u", DoneBytes: 20 << 20, TotalBytes: 40 << 20}).To(MatchError("downloading u: 20Mi of 40Mi (50 %)"))
}

// TestHostIsLost checks a transfer to a host that is unreachable for some time.
func TestHostIsLost(t *testing.T) {
	f := newFixture(t, newHosts("one", "two"), Options{})
	content := qcow2Image(nil)
	half, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		once.Do(func() { close(half) })
		<-goOn
		_, _ = w.Write(content[len(content)/2:])
	})
	wish := wishFor(server.URL, content)
	_, err := f.Ensure(t.Context(), wish, machine(1))
	f.Expect(err).To(HaveOccurred())
	<-half
	f.Eventually(func() error {
		_, err := f.Ensure(t.Context(), wish, machine(1))
		return err
	}).WithTimeout(patience).Should(And(HaveField("DoneBytes", BeNumerically(">", 0)), MatchError("downloading "+server.URL)), "small sizes aren't shown")
	f.fakes.hosts["one"].SetReachable(false)
	close(goOn)
	f.Expect(f.next().NamespacedName).To(Equal(machine(1)))
	f.Eventually(func() error {
		_, err := f.Ensure(t.Context(), wish, machine(1))
		return err
	}).WithTimeout(patience).Should(MatchError(hypervisor.ErrUnreachable))
	other := wish
	other.Host = "two"
	f.Eventually(func() error {
		_, err := f.Ensure(t.Context(), other, machine(2))
		return err
	}).WithTimeout(patience).Should(Succeed(), "another host isn't affected")
	f.fakes.hosts["one"].SetReachable(true)
	f.Eventually(func() error {
		_, err := f.Ensure(t.Context(), wish, machine(1))
		return err
	}).WithTimeout(patience).Should(Succeed())
	f.Expect(f.volumes("one")).To(Equal(whole(wish)))
}

// TestUnwantedTransferIsCancelled checks that a transfer ends with its last machine and leaves nothing.
func TestUnwantedTransferIsCancelled(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	content := qcow2Image(nil)
	begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	wish := wishFor(server.URL, content)
	for i := range 2 {
		_, err := f.Ensure(t.Context(), wish, machine(i))
		f.Expect(err).To(HaveOccurred())
	}
	<-begun
	f.Eventually(func() []string { return f.volumes("one") }).WithTimeout(patience).Should(HaveLen(1))
	f.Forget(machine(0))
	f.Consistently(ended, "100ms").ShouldNot(Receive())
	f.Forget(machine(1))
	f.Eventually(ended).WithTimeout(patience).Should(Receive())
	f.Eventually(func() []string { return f.volumes("one") }).WithTimeout(patience).Should(BeEmpty())
	f.Expect(f.tasks).To(BeEmpty())

	_, err := f.Ensure(t.Context(), wish, machine(3))
	f.Expect(err).To(HaveOccurred())
	<-begun
	f.stop()
	f.Expect(f.volumes("one")).To(BeEmpty(), "nothing stays when the manager stops")
	_, err = f.Ensure(t.Context(), wish, machine(4))
	f.Expect(err).To(MatchError(ContainSubstring("is queued")), "no transfer starts afterwards")
}

// TestLimits checks the limits of concurrent transfers for a host and in all, and that a slow host doesn't delay
// others.
func TestLimits(t *testing.T) {
	f := newFixture(t, newHosts("one", "two", "three"), Options{PerHost: 1, InAll: 4}) // half of them for one namespace
	var most atomic.Int32
	var bodies [][]byte
	for i := range 4 {
		bodies = append(bodies, qcow2Image(func(h []byte) { h[100] = byte(i) }))
	}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		f.lock.Lock()
		perHost, all := map[string]int{}, 0
		for of, task := range f.tasks {
			if task.phase == transferring {
				perHost[of.host]++
				all++
			}
		}
		f.lock.Unlock()
		for host, count := range perHost {
			if count > 1 {
				t.Errorf("%d transfers to %s at once", count, host)
			}
		}
		most.Store(max(most.Load(), int32(all)))
		time.Sleep(time.Millisecond)
		i, _ := strconv.Atoi(r.URL.Query().Get("n"))
		serving(bodies[i])(w, r)
	})
	var all sync.WaitGroup
	for host := range f.fakes.hosts {
		for i, content := range bodies {
			all.Go(func() {
				wish := wishFor(server.URL+"?host="+host+"&n="+strconv.Itoa(i), content)
				wish.Host = host
				f.Eventually(func() error {
					_, err := f.Ensure(t.Context(), wish, machine(i))
					return err
				}).WithTimeout(patience).Should(Succeed())
			})
		}
	}
	all.Wait()
	f.Expect(most.Load()).To(BeEquivalentTo(2))
	f.stop()
	f.Expect(f.turns).To(BeEmpty(), "hosts without transfers are removed")
}

// TestKilledManagers checks that the next manager deletes incomplete images after it has a complete one, or when they
// haven't grown for long. Backing volumes of machines stay.
func TestKilledManagers(t *testing.T) {
	f := newFixture(t, newHosts("one"), Options{})
	content := qcow2Image(nil)
	var fail atomic.Bool
	fail.Store(true)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if fail.Load() {
			http.NotFound(w, r)
			return
		}
		serving(content)(w, r)
	})
	wish := wishFor(server.URL, content)
	host, err := f.fakes.hypervisor("one")
	f.Expect(err).ToNot(HaveOccurred())
	f.fakes.hosts["one"].SetPool(hypervisor.Pool{Name: "fast", Active: true, AvailableBytes: 1 << 40})
	create := func(pool, name, backing string) {
		spec := hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: pool, Name: name}, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20}
		if backing != "" {
			spec.Backing = &hypervisor.Backing{Path: backing, Format: hypervisor.FormatQCOW2}
		}
		_, err := host.CreateVolume(t.Context(), spec)
		f.Expect(err).ToNot(HaveOccurred())
	}
	create("default", wish.marker()+".dead", "")
	create("default", wish.marker()+".used", "")
	create("fast", "disk", "/fake/default/"+wish.marker()+".used")
	create("default", "other", "")

	// A running manager may fill it: it stays until it hasn't grown for long.
	f.Expect(f.failure(wish, machine(1))).To(MatchError(ContainSubstring("404")))
	stray := hypervisor.VolumeRef{Pool: "default", Name: wish.marker() + ".dead"}
	f.Expect(host.Volume(t.Context(), stray)).Error().ToNot(HaveOccurred())
	f.lock.Lock()
	ofGone := "gone/default/" + stray.Name
	f.observed[ofGone] = observation{since: time.Now()}
	f.now = func() time.Time { return time.Now().Add(strayAge) }
	f.lock.Unlock()
	f.Eventually(func() error {
		_, err := host.Volume(t.Context(), stray)
		return err
	}).WithTimeout(patience).Should(MatchError(hypervisor.ErrNotFound))

	create("default", stray.Name, "")
	f.lock.Lock()
	f.now = func() time.Time { return time.Now().Add(forgetAge + time.Minute) }
	f.lock.Unlock()
	f.Eventually(func() []string {
		f.lock.Lock()
		defer f.lock.Unlock()
		return slices.Collect(maps.Keys(f.observed))
	}).WithTimeout(patience).ShouldNot(ContainElement(ofGone), "observations of deleted hosts are removed")
	fail.Store(false)
	image := f.eventually(wish, machine(1))
	f.stop()
	left, _ := f.fakes.hosts["one"].Left()
	f.Expect(left).To(ConsistOf(image.VolumeRef, wish.markerRef(),
		hypervisor.VolumeRef{Pool: "default", Name: wish.marker() + ".used"}, hypervisor.VolumeRef{Pool: "fast", Name: "disk"},
		hypervisor.VolumeRef{Pool: "default", Name: "other"}))
}

// TestMarkersWithoutContent checks markers whose content was deleted, and volumes that aren't valid markers.
func TestMarkersWithoutContent(t *testing.T) {
	content := qcow2Image(nil)
	server := serve(t, serving(content))
	wish := wishFor(server.URL, content)
	for name, spoil := range map[string]func(f *fixture, host hypervisor.Hypervisor, image Image) error{
		"content deleted": func(f *fixture, host hypervisor.Hypervisor, image Image) error {
			return host.DeleteVolume(f.t.Context(), image.VolumeRef)
		},
		"marker deleted": func(f *fixture, host hypervisor.Hypervisor, _ Image) error {
			return host.DeleteVolume(f.t.Context(), wish.markerRef())
		},
		"marker is incomplete": func(f *fixture, host hypervisor.Hypervisor, _ Image) error {
			_, err := host.CreateVolume(f.t.Context(), hypervisor.VolumeSpec{VolumeRef: wish.markerRef(), Format: hypervisor.FormatRaw, CapacityBytes: 1})
			return errors.Join(host.DeleteVolume(f.t.Context(), wish.markerRef()), func() error {
				_, err = host.CreateVolume(f.t.Context(), hypervisor.VolumeSpec{VolumeRef: wish.markerRef(), Format: hypervisor.FormatRaw, CapacityBytes: 1})
				return err
			}())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, newHosts("one"), Options{})
			image := f.eventually(wish, machine(1))
			host, err := f.fakes.hypervisor("one")
			f.Expect(err).ToNot(HaveOccurred())
			f.Expect(spoil(f, host, image)).To(Succeed())
			image = f.eventually(wish, machine(1))
			f.Expect(f.uploads("one")).To(Equal(2))
			f.Expect(f.fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(content))
			f.stop()
			f.Expect(f.volumes("one")).To(Equal(whole(wish)))
		})
	}
}

// TestTwoManagers transfers to the same pool from two managers, one with a server that sends a wrong file. No image
// without the checksum is ever visible, and in the end there is one.
func TestTwoManagers(t *testing.T) {
	good := qcow2Image(nil)
	bad := qcow2Image(func(header []byte) { header[103] = 1 })
	for seed := range 20 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			fakes := newHosts("one")
			a, b := newFixture(t, fakes, Options{}), newFixture(t, fakes, Options{})
			var requests atomic.Int32
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				n := int(requests.Add(1)) + seed
				content := good
				if n%3 == 0 {
					content = bad
				}
				time.Sleep(time.Duration(n%4) * time.Millisecond)
				w.Header().Set("Content-Length", strconv.Itoa(len(content)))
				_, _ = w.Write(content[:len(content)/2])
				w.(http.Flusher).Flush()
				if n%5 == 0 {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write(content[len(content)/2:])
			})
			wish := wishFor(server.URL, good)
			var all sync.WaitGroup
			for i, f := range []*fixture{a, b} {
				all.Go(func() {
					f.Eventually(func() error {
						image, err := f.Ensure(t.Context(), wish, machine(i))
						if err == nil {
							f.Expect(fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(good))
						}
						return err
					}).WithTimeout(patience).Should(Succeed())
				})
			}
			all.Wait()
			a.stop()
			b.stop()
			host, err := fakes.hypervisor("one")
			a.Expect(err).ToNot(HaveOccurred())
			image, err := look(t.Context(), host, wish)
			a.Expect(err).ToNot(HaveOccurred())
			a.Expect(fakes.hosts["one"].Content(image.VolumeRef)).To(Equal(good))
			a.Expect(a.volumes("one")).To(ContainElements(whole(wish)))
		})
	}
}

// TestRawImagesOfOtherFormats checks that a raw image with the header of a format that libvirt detects is refused:
// libvirt opens the files that such a header names.
func TestRawImagesOfOtherFormats(t *testing.T) {
	for _, magic := range []string{"QFI\xfb", "QED\x00", "KDMV", "COWD", "OOOM"} {
		_, err := diskSize(hypervisor.FormatRaw, append([]byte(magic), make([]byte, headerBytes)...), 1<<20)
		NewWithT(t).Expect(err).To(MatchError(ErrNotAnImage), "%q", magic)
	}
	NewWithT(t).Expect(diskSize(hypervisor.FormatRaw, make([]byte, headerBytes), 1<<20)).To(BeEquivalentTo(1 << 20))
}
