package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterctl-release/clusterctl-release/internal/unready"
)

const (
	hostsOfMachines = 20
	// reconcilesAtOnce is the manager's default for LibvirtMachines, and the concurrency of the peer.
	reconcilesAtOnce = 50
	// requestsASecond is the manager's limit here, and usualRequestsASecond its default limit.
	requestsASecond, usualRequestsASecond = 2000, 100
	infraGroup                            = "infrastructure.cluster.x-k8s.io/v1alpha1"
)

// trial is one way of creating machines, with their number.
type trial struct {
	title string
	size  int
	// fill creates the objects that exist when the manager starts, except hosts and a Cluster.
	fill func(p *plant, ctx context.Context, size int) error
	// await returns when all machines are provisioned. It calls first when the first one is.
	await func(p *plant, ctx context.Context, size int, first func()) error
	// own are the writes of await itself, by resource.
	own map[string]int
	// prepare changes hosts and objects before the manager starts.
	prepare func(p *plant, ctx context.Context) error
	// withBare means that the bare calls are measured as well.
	withBare bool
	// aim is the maximum ratio to the time of the first trial, or 0.
	aim float64
}

// machineTrials have LibvirtMachines with their Machines.
func machineTrials(sizes []int) []trial {
	var trials []trial
	for _, size := range sizes {
		trials = append(trials, trial{title: "LibvirtMachines", size: size, fill: (*plant).fillMachinesOf, await: (*plant).awaitMachinesOf, withBare: true})
	}
	return trials
}

// outcome is the result of a trial.
type outcome struct {
	trial
	ran
	bare             time.Duration
	calls, bareCalls map[uint32]int
	writes           map[string]int
	cpu              cpuTimes
}

// benchMachines measures how fast machines are created: the real manager, on a real kube-apiserver and twenty daemons
// with libvirt's test driver, starts with existing objects and provisions all machines. The peer is a program that
// makes only the necessary calls, with the same concurrency, without storing or looking up anything twice.
func benchMachines(ctx context.Context, work string, trials []trial, limit time.Duration) error {
	waiter := unready.Waiter{Out: os.Stderr, Limit: limit, Every: time.Minute}
	manager := filepath.Join(work, "manager")
	var assets, module string
	// On a machine with cold caches, these take longer than the trials.
	err := waiter.For(ctx, "the API server and the manager to be built", func(ctx context.Context) (err error) {
		if assets, err = output(ctx, "", "hack/tools/envtest"); err != nil {
			return err
		}
		if module, err = output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api"); err != nil {
			return err
		}
		_, err = output(ctx, "", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", manager, "./provider")
		return err
	})
	if err != nil {
		return err
	}
	log.SetLogger(logr.Discard())
	var outcomes []outcome
	for _, t := range trials {
		o, err := t.run(ctx, waiter, work, assets, module, manager)
		if err != nil {
			return fmt.Errorf("%d %s: %w", t.size, t.title, err)
		}
		o.print()
		if outcomes = append(outcomes, o); o.aim > 0 {
			fmt.Printf("%s: %.2f times as long as %s (aim: at most %.2f)\n\n", o.title, o.wall.Seconds()/outcomes[0].wall.Seconds(), outcomes[0].title, o.aim)
		}
	}
	printGrowth(outcomes)
	return nil
}

func (t trial) run(ctx context.Context, waiter unready.Waiter, work, assets, module, manager string) (o outcome, err error) {
	o.trial = t
	p := &plant{waiter: waiter, calls: &callCounter{calls: map[uint32]int{}}}
	defer func() {
		stop := func(context.Context) error { return p.stop() }
		err = errors.Join(err, waiter.For(context.WithoutCancel(ctx), "the API server and the hosts to end", stop))
	}()
	if err := waiter.For(ctx, "the API server and the hosts to start", func(context.Context) error { return p.start(assets, module, work) }); err != nil {
		return o, err
	}
	p.waiter.Show = p.unready
	err = p.waiter.For(ctx, fmt.Sprintf("the objects of %d machines to be made", t.size), func(ctx context.Context) error {
		if err := errors.Join(p.fillHosts(ctx), t.fill(p, ctx, t.size)); err != nil {
			return fmt.Errorf("making objects: %w", err)
		}
		if t.prepare == nil {
			return nil
		}
		return t.prepare(p, ctx)
	})
	if err != nil {
		return o, err
	}
	before, err := p.writes(ctx)
	if err != nil {
		return o, err
	}
	started, err := cpuSoFar()
	if err != nil {
		return o, err
	}
	p.calls.take()
	if o.ran, err = p.runManager(ctx, manager, filepath.Join(work, "manager.log"), t); err != nil {
		return o, err
	}
	o.calls = p.calls.take()
	o.cpu = o.cpuAfter.since(started)
	after, err := p.writes(ctx)
	if err != nil {
		return o, err
	}
	o.writes = map[string]int{}
	for resource, number := range after {
		o.writes[resource] = number - before[resource] - t.own[resource]
	}
	if !t.withBare {
		return o, nil
	}
	if err := p.empty(); err != nil {
		return o, err
	}
	p.calls.take()
	if o.bare, err = p.bareCalls(ctx, t.size); err != nil {
		return o, fmt.Errorf("the bare calls: %w", err)
	}
	o.bareCalls = p.calls.take()
	return o, nil
}

func (o outcome) each(n int) float64 { return float64(n) / float64(o.size) }

func sum(of map[uint32]int) (all int) {
	for _, n := range of {
		all += n
	}
	return all
}

// print prints the result of a trial, and its possible limits.
func (o outcome) print() {
	line := func(what, format string, values ...any) {
		fmt.Printf("  %-26s "+format+"\n", append([]any{what}, values...)...)
	}
	fmt.Printf("%d %s on %d hosts of libvirt's test driver\n", o.size, o.title, hostsOfMachines)
	line("all provisioned", "%8.1f s after the manager's start, the first after %.1f s; %.1f machines a second", o.wall.Seconds(), o.first.Seconds(), o.rate())
	if o.withBare {
		line("bare calls to libvirt", "%8.1f s, %d at once; ratio %.2f", o.bare.Seconds(), reconcilesAtOnce, o.wall.Seconds()/o.bare.Seconds())
	}
	line("peak memory", "%8.0f MiB (aim at 1,000: less than 250)", o.peak)
	line("API writes a machine", "%8.2f to LibvirtMachines (aim 6), %.2f events, %.2f to LibvirtMachinePools, %.2f to LibvirtHosts",
		o.each(o.writes["libvirtmachines"]), o.each(o.writes["events"]), o.each(o.writes["libvirtmachinepools"]), o.each(o.writes["libvirthosts"]))
	line("libvirt calls a machine", "%8.2f (aim 25), those of the sessions with hosts too", o.each(sum(o.calls)))
	if o.withBare {
		line("bare calls a machine", "%8.2f", o.each(sum(o.bareCalls)))
	}
	fmt.Printf("    by number in remote_protocol.x: %s\n", most(o.calls, o.size))
	o.printLimits(line)
	fmt.Println()
}

// printLimits prints how near each limit was: the concurrency, the rate of requests, and the machine's CPUs.
func (o outcome) printLimits(line func(what, format string, values ...any)) {
	const whole = 100
	line("limit: concurrency", "%8.0f %% of the time of %d reconciles at once was used", whole*o.busy.Seconds()/(reconcilesAtOnce*o.wall.Seconds()), reconcilesAtOnce)
	requests := o.each(o.requests)
	line("limit: requests", "%8.2f a machine: at most %.0f machines a second with %d requests a second, %.1f with the default of %d",
		requests, requestsASecond/requests, requestsASecond, usualRequestsASecond/requests, usualRequestsASecond)
	cpus := runtime.NumCPU()
	line("limit: CPU", "%8.0f %% of %d CPUs was used: manager %.1f s, API server and etcd %.1f s, libvirtd %.1f s, this program %.1f s, others on this machine %.1f s",
		whole*o.cpu.all.Seconds()/(float64(cpus)*o.wall.Seconds()), cpus, o.cpu.of["manager"].Seconds(), (o.cpu.of["kube-apiserver"] + o.cpu.of["etcd"]).Seconds(),
		o.cpu.of["libvirtd"].Seconds(), o.cpu.self.Seconds(), o.cpu.others().Seconds())
}

func (o outcome) rate() float64 { return float64(o.size) / o.wall.Seconds() }

// printGrowth prints how the results grow, for several sizes.
func printGrowth(outcomes []outcome) {
	if len(outcomes) < 2 {
		return
	}
	fmt.Printf("%-56s %8s %12s %14s %8s %8s\n", "growth", "machines", "wall/machine", "CPU of manager", "writes", "memory")
	for _, o := range outcomes {
		fmt.Printf("  %-54s %8d %9.1f ms %11.1f ms %8.2f %4.0f MiB\n", o.title, o.size, o.each(int(o.wall.Microseconds()))/1000,
			o.each(int(o.cpu.of["manager"].Microseconds()))/1000, o.each(o.writes["libvirtmachines"]), o.peak)
	}
	fmt.Println()
}

// most prints the calls that occurred for at least every tenth machine.
func most(calls map[uint32]int, size int) string {
	var parts []string
	for number := range uint32(1000) {
		if calls[number]*10 >= size {
			parts = append(parts, fmt.Sprintf("%d: %.2f", number, float64(calls[number])/float64(size)))
		}
	}
	return strings.Join(parts, ", ")
}
