package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
)

var faultSeed = flag.Uint64("e2e.faults", 0, "cause faults while specs run, chosen by this seed; 0 for none")

// faults are what may happen to a host and to the managers, each by its name. They end by themselves.
var faults = []struct {
	name  string
	cause func(ctx context.Context, host *libvirthost.Host, random *rand.Rand) error
}{
	{"a manager is killed", killManager},
	{"libvirtd is killed", func(ctx context.Context, host *libvirthost.Host, random *rand.Rand) error {
		host.KillDaemon()
		time.Sleep(seconds(random, 1, 20))
		return host.StartDaemon(ctx)
	}},
	{"the host is cut off", func(_ context.Context, host *libvirthost.Host, random *rand.Rand) error {
		if err := host.Namespace.Cut(); err != nil {
			return err
		}
		time.Sleep(seconds(random, 5, 40))
		return host.Namespace.Fix()
	}},
}

// causeFaults causes one fault after the other until stop is called, which checks that none failed, and that each was
// caused at least once.
func causeFaults(ctx context.Context, host *libvirthost.Host, seed uint64) (stop func()) {
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // the same faults for the same seed
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	caused := map[string]int{}
	go func() {
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(seconds(random, 15, 60)):
			}
			fault := faults[random.IntN(len(faults))]
			fmt.Printf("  FAULT: %s @ %s\n", fault.name, time.Now().Format(time.TimeOnly))
			if err := fault.cause(context.WithoutCancel(ctx), host, random); err != nil {
				ended <- fmt.Errorf("causing the fault %q: %w", fault.name, err)
				return
			}
			caused[fault.name]++
		}
	}()
	return func() {
		cancel()
		Expect(<-ended).To(Succeed())
		fmt.Println("faults that were caused:", caused)
		Expect(caused).To(HaveLen(len(faults)), "the specs were too short for each fault")
	}
}

// managerLabel is what pods of managers have by the providers' convention.
const managerLabel = "control-plane"

// killManager kills the manager of any provider.
func killManager(ctx context.Context, _ *libvirthost.Host, random *rand.Rand) error {
	var pods corev1.PodList
	if err := bed.Client.List(ctx, &pods, client.HasLabels{managerLabel}); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("no pods of providers")
	}
	return client.IgnoreNotFound(bed.Client.Delete(ctx, &pods.Items[random.IntN(len(pods.Items))], client.GracePeriodSeconds(0)))
}

func seconds(random *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+random.IntN(most-least+1)) * time.Second
}
