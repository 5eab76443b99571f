package libvirtmachine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// answer answers a request for the image.
type answer func(w http.ResponseWriter, request *http.Request)

func sized(w http.ResponseWriter, size int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
}

func whole(w http.ResponseWriter, _ *http.Request) {
	sized(w, int64(len(imageContent)))
	_, _ = w.Write(imageContent)
}

func fails(code int) answer {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// half sends and flushes half of the image.
func half(w http.ResponseWriter) {
	sized(w, int64(len(imageContent)))
	_, _ = w.Write(imageContent[:len(imageContent)/2])
	w.(http.Flusher).Flush() //nolint:forcetypeassert // it is net/http's
}

// serverMessage is the only message about failures of servers: users may not be allowed to see the content of the
// server.
const serverMessage = "failed and is retried: the server can't be reached, or doesn't serve a usable image"

// imageFailures are failures of the transfer of an image to a host, with the condition of the machine.
var imageFailures = []struct {
	name            string
	answer          answer
	onHost          func(*fake.Host) (repair func())
	reason, message string
}{
	{name: "silent in the middle", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, request *http.Request) { half(w); <-request.Context().Done() }},
	{name: "cut off in the middle", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) { half(w); panic(http.ErrAbortHandler) }},
	{name: "cut off before it answers", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{name: "other content of the same length", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) {
			content := bytes.Clone(imageContent)
			content[len(content)-1]++
			sized(w, int64(len(content)))
			_, _ = w.Write(content)
		}},
	{name: "too long", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) {
			sized(w, int64(len(imageContent)+4))
			_, _ = w.Write(append(bytes.Clone(imageContent), "more"...))
		}},
	{name: "too short", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) {
			sized(w, int64(len(imageContent)-4))
			_, _ = w.Write(imageContent[:len(imageContent)-4])
		}},
	{name: "longer than anything", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) { sized(w, 2<<40); _, _ = w.Write(imageContent) }},
	{name: "of unknown length", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush() //nolint:forcetypeassert // it is net/http's
			_, _ = w.Write(imageContent)
		}},
	{name: "not found", reason: infrav1.ImageTransferFailedReason, message: serverMessage, answer: fails(http.StatusNotFound)},
	{name: "broken", reason: infrav1.ImageTransferFailedReason, message: serverMessage, answer: fails(http.StatusInternalServerError)},
	{name: "a page to log in", reason: infrav1.ImageTransferFailedReason, message: serverMessage,
		answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>" + strings.Repeat("Who are you? ", 20)))
		}},
	{name: "disk full before", reason: infrav1.NoRoomReason, message: "storing the image in pool default: no room on the host",
		onHost: func(host *fake.Host) func() { return host.FillPool("default") }},
	{name: "disk full while uploading", reason: infrav1.NoRoomReason, message: "no room on the host",
		onHost: func(host *fake.Host) func() {
			host.Inject(fake.Fault{Operation: fake.UploadVolume, Times: -1, Effect: fake.Fail, Reason: hypervisor.ErrNoSpace})
			return host.ClearFaults
		}},
}

// slowly sends the image in pieces, with pauses that are shorter than the limit.
func slowly(w http.ResponseWriter, _ *http.Request) {
	sized(w, int64(len(imageContent)))
	for rest := imageContent; len(rest) > 0; rest = rest[min(len(rest), 250):] {
		_, _ = w.Write(rest[:min(len(rest), 250)])
		w.(http.Flusher).Flush() //nolint:forcetypeassert // it is net/http's
		time.Sleep(2 * time.Millisecond)
	}
}

// TestImageFailures: one failure of the transfer follows the other, with managers that are killed and hosts that are
// lost in between. The condition has the reason, an incomplete image is never marked as complete, and the machine is
// created as soon as the image is available, slowly or not.
func TestImageFailures(t *testing.T) {
	for seed := range uint64(2 * len(imageFailures)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			var now atomic.Pointer[answer]
			var requested atomic.Int64
			set := func(how answer) { now.Store(&how) }
			set(imageFailures[0].answer)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				requested.Add(1)
				(*now.Load())(w, request)
			}))
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			w := newWorld(t, func(infra *infrav1.LibvirtMachine) { infra.Spec.Image.URL = server.URL + "/image?token=" + secret }, "a")
			w.images = &images.Options{Sources: testSources, MinRate: 1, IdleTimeout: 100 * time.Millisecond, FirstRetry: 5 * time.Millisecond, LastRetry: 20 * time.Millisecond, CleanUpTimeout: time.Second}
			w.ledger = &placement.Ledger{} // a machine without a host has no condition of its image
			w.killNext = func() int {
				if random.IntN(2) == 0 {
					return 1 + random.IntN(12)
				}
				return 0
			}

			// Each failure is among the first ones of two seeds.
			numbers := []int{int(seed) % len(imageFailures), random.IntN(len(imageFailures)), random.IntN(len(imageFailures))}
			m := w.until(w.newManager(w.killNext()), func() bool { return w.infra().Spec.HostName != "" }) // machines aren't placed on a host with a full disk
			for _, number := range numbers {
				failure := imageFailures[number]
				t.Log(failure.name)
				repair := func() {}
				if failure.onHost != nil {
					repair = failure.onHost(w.hosts["a"])
					set(whole)
				} else {
					set(failure.answer)
				}
				m = w.until(m, func() bool {
					w.Expect(w.badImages()).To(BeEmpty())
					infra := w.infra()
					return conditions.GetReason(infra, infrav1.ImageReadyCondition) == failure.reason &&
						strings.Contains(conditions.GetMessage(infra, infrav1.ImageReadyCondition), failure.message)
				})
				w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).To(ContainSubstring(failure.message), "in Ready too")
				switch random.IntN(3) {
				case 0:
					m.end()
					m = w.newManager(w.killNext())
				case 1:
					w.hosts["a"].SetReachable(false)
					w.hosts["a"].SetReachable(true)
				}
				w.Expect(w.badImages()).To(BeEmpty())
				if failure.onHost != nil {
					// An earlier request could still succeed and end the failures. It has ended when there is another
					// attempt.
					set(imageFailures[0].answer)
					before := requested.Load()
					m = w.until(m, func() bool { return requested.Load() > before })
				}
				repair()
			}
			set([]answer{whole, slowly}[random.IntN(2)])
			w.until(m, w.isProvisioned)
			w.Expect(w.badImages()).To(BeEmpty())
			w.Expect(w.inventory()).To(Equal([]string{"a: domain Running", "a: volume uuid-root", "a: volume uuid-seed"}))
			w.Expect(strings.ReplaceAll(w.output(), "URL:"+server.URL+"/image?token="+secret, "")).ToNot(ContainSubstring(secret))
		})
	}
}

// badImages returns the images that are marked as complete and aren't.
func (w *world) badImages() []string {
	host := w.hosts["a"]
	volumes, _ := host.Left()
	var bad []string
	for _, ref := range volumes {
		if !strings.HasPrefix(ref.Name, "caplv-image-") || host.Backing(ref) == "" {
			continue
		}
		content := host.Content(hypervisor.VolumeRef{Pool: ref.Pool, Name: path.Base(host.Backing(ref))})
		if !bytes.Equal(content, imageContent) {
			bad = append(bad, fmt.Sprintf("%s marks %d bytes", ref, len(content)))
		}
	}
	return bad
}

// TestBadImagesAreSeen checks badImages itself.
func TestBadImagesAreSeen(t *testing.T) {
	w := newWorld(t, nil, "a")
	w.Expect(w.badImages()).To(BeEmpty())
	by, err := w.hosts["a"].Connect(t.Context())
	w.Expect(err).ToNot(HaveOccurred())
	content, err := by.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: "caplv-image-x.1"},
		Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(by.UploadVolume(t.Context(), content.VolumeRef, strings.NewReader("half"), 4)).To(Succeed())
	w.Expect(w.badImages()).To(BeEmpty())
	_, err = by.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: "caplv-image-x"},
		Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20, Backing: &hypervisor.Backing{Path: content.Path, Format: hypervisor.FormatQCOW2}})
	w.Expect(err).ToNot(HaveOccurred())
	w.Expect(w.badImages()).To(Equal([]string{"default/caplv-image-x marks 4 bytes"}))
}
