package libvirtmachine

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// TestCallsThatHang: any call to a host may hang, several times in a life. Each time the connection is closed, as after
// a call that takes too long.
func TestCallsThatHang(t *testing.T) {
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			life := int(seed) % len(lives)
			random := rand.New(rand.NewPCG(seed, 3))
			w := newWorld(t, lives[life].change, "a")
			host := w.hosts["a"]
			w.until(w.newManager(0), func() bool { return w.infra().Spec.HostName != "" })
			for range 4 {
				host.Inject(fake.Fault{Skip: random.IntN(25), Effect: fake.Hang, AfterDone: random.IntN(2) == 0})
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended, hung := make(chan struct{}), 0
			go func() {
				defer close(ended)
				for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
					if host.Hanging() > 0 {
						hung++
						host.SetReachable(false)
						host.SetReachable(true)
					}
				}
			}()
			w.live(w.newManager(0), life)
			cancel()
			<-ended
			w.Expect(hung).To(BeNumerically(">=", 1))
		})
	}
}
