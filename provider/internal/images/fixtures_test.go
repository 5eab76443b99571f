package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// patience is the timeout of waits in tests. It doesn't check the speed.
const patience = time.Minute

const diskBytes = 3 << 30

// qcow2Image returns the header of an image, as this package reads it, and some content.
func qcow2Image(change func(header []byte)) []byte {
	header := make([]byte, headerBytes)
	copy(header, qcow2Magic)
	binary.BigEndian.PutUint32(header[4:], 3)
	binary.BigEndian.PutUint64(header[24:], diskBytes)
	if change != nil {
		change(header)
	}
	return append(header, bytes.Repeat([]byte("0123456789abcdef"), 20000)...)
}

func checksum(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// serve serves with a handler until the test ends.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func serving(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
	}
}

// hosts are fake hosts, each with one connection that is opened again after it was lost.
type hosts struct {
	lock  sync.Mutex
	hosts map[string]*fake.Host
	open  map[string]hypervisor.Hypervisor
}

func newHosts(names ...string) *hosts {
	h := &hosts{hosts: map[string]*fake.Host{}, open: map[string]hypervisor.Hypervisor{}}
	for _, name := range names {
		h.hosts[name] = fake.NewHost()
	}
	return h
}

func (h *hosts) hypervisor(name string) (hypervisor.Hypervisor, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	ctx := context.Background()
	if connected, exists := h.open[name]; exists {
		if _, err := connected.Facts(ctx); err == nil {
			return connected, nil
		}
		_ = connected.Close()
	}
	connected, err := h.hosts[name].Connect(ctx)
	if err == nil {
		h.open[name] = connected
	}
	return connected, err
}

// fixture is a store with fake hosts and the queue of its events.
type fixture struct {
	*WithT
	*Store
	t     *testing.T
	fakes *hosts
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	stop  func()
}

// newFixture starts a store with fake hosts and short retry delays.
func newFixture(t *testing.T, fakes *hosts, options Options) *fixture {
	t.Helper()
	options.FirstRetry, options.LastRetry = time.Millisecond, 4*time.Millisecond
	if options.Sources.Allowed == nil {
		options.Sources.Allowed = []string{"127.0.0.0/8", "*.invalid"} // the servers of tests, and URLs for proxies
	}
	f := &fixture{WithT: NewWithT(t), t: t, fakes: fakes,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	f.Store = New(fakes.hypervisor, func(string) []string { return []string{"default", "fast"} }, options)
	f.Expect(f.Source().Start(t.Context(), f.queue)).To(Succeed())
	t.Cleanup(f.queue.ShutDown)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		f.Expect(<-ended).To(Succeed())
	})
	t.Cleanup(f.stop)
	return f
}

func machine(number int) types.NamespacedName {
	return types.NamespacedName{Namespace: "team", Name: fmt.Sprintf("machine-%d", number)}
}

func wishFor(url string, content []byte) Wish {
	return Wish{Host: "one", Pool: "default", URL: url, Checksum: checksum(content), Format: infrav1.ImageFormatQCOW2}
}

// eventually waits until Ensure returns the image. It calls Ensure again for each event of the machine, as a controller
// does.
func (f *fixture) eventually(wish Wish, name types.NamespacedName) Image {
	f.t.Helper()
	for {
		image, err := f.Ensure(f.t.Context(), wish, name)
		if err == nil {
			return image
		}
		var transferring *Transferring
		var failed *Failed
		f.Expect(errors.As(err, &transferring) || errors.As(err, &failed)).To(BeTrue(), "%v", err)
		request := f.next()
		f.Expect(request.NamespacedName).To(Equal(name))
	}
}

// failure waits until a transfer has failed, and returns the error.
func (f *fixture) failure(wish Wish, name types.NamespacedName) error {
	f.t.Helper()
	var failed *Failed
	f.Eventually(func() bool {
		_, err := f.Ensure(f.t.Context(), wish, name)
		f.Expect(err).To(HaveOccurred())
		return errors.As(err, &failed)
	}).WithTimeout(patience).Should(BeTrue())
	var ofHost *hypervisor.Error
	var ofSource *sourceError
	if !errors.Is(failed.Err, errNotAllowed) && (!errors.As(failed.Err, &ofHost) || errors.As(failed.Err, &ofSource)) {
		f.Expect(failed).To(MatchError("downloading "+failed.URL+" failed and is retried: "+publicServerError), "users don't see details of servers")
	}
	return fmt.Errorf("downloading %s: %w", failed.URL, failed.Err)
}

// publicServerError is the only text about failed servers that users see.
const publicServerError = "the server can't be reached, or doesn't serve a usable image with the checksum. See the manager's log"

func (f *fixture) next() reconcile.Request {
	f.t.Helper()
	got := make(chan reconcile.Request, 1)
	go func() {
		request, _ := f.queue.Get()
		f.queue.Done(request)
		got <- request
	}()
	select {
	case request := <-got:
		return request
	case <-time.After(patience):
		f.t.Fatal("the queue is empty")
		return reconcile.Request{}
	}
}

// volumes returns the names of a host's volumes without their random parts.
func (f *fixture) volumes(host string) []string {
	all, _ := f.fakes.hosts[host].Left()
	var names []string
	for _, ref := range all {
		name := ref.Name
		if i := strings.LastIndex(name, ".qcow2."); i >= 0 {
			name = name[:i] + ".qcow2.content"
		}
		names = append(names, name)
	}
	return names
}

// whole returns the volumes of a complete image.
func whole(wish Wish) []string { return []string{wish.marker(), wish.marker() + ".content"} }

// uploads counts the successful uploads to a host.
func (f *fixture) uploads(host string) int {
	count := 0
	for _, call := range f.fakes.hosts[host].Calls() {
		if call.Operation == fake.UploadVolume && call.Err == nil {
			count++
		}
	}
	return count
}
