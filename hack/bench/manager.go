package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ran is the result of a run of the manager.
type ran struct {
	// wall is the time until all machines were provisioned, and first the time until one was.
	wall, first time.Duration
	// busy is the total time of its workers for LibvirtMachines.
	busy time.Duration
	// requests is the number of its requests to the API server.
	requests int
	// peak memory in MiB.
	peak     float64
	cpuAfter cpuTimes
}

// runManager starts the manager, waits until all machines of a trial are provisioned, and ends it.
func (p *plant) runManager(ctx context.Context, manager, logFile string, t trial) (m ran, err error) {
	webhooks := envtest.WebhookInstallOptions{}
	if err := webhooks.PrepWithoutInstalling(); err != nil {
		return m, fmt.Errorf("making certificates: %w", err)
	}
	defer func() { err = errors.Join(err, webhooks.Cleanup()) }()
	diagnostics, err := freeAddress(ctx)
	if err != nil {
		return m, err
	}
	out, err := os.Create(logFile)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	cmd := exec.CommandContext(ctx, manager, "--kubeconfig="+p.kubeconfig, "--webhook-cert-dir="+webhooks.LocalServingCertDir,
		fmt.Sprintf("--webhook-port=%d", webhooks.LocalServingPort), "--health-addr=127.0.0.1:0", "--diagnostics-address="+diagnostics, "--insecure-diagnostics",
		fmt.Sprintf("--libvirtmachine-concurrency=%d", reconcilesAtOnce), fmt.Sprintf("--kube-api-qps=%d", requestsASecond), fmt.Sprintf("--kube-api-burst=%d", 2*requestsASecond),
		"--profiler-address="+os.Getenv("BENCH_PROFILER"))
	cmd.Stdout, cmd.Stderr = out, out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return m, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		ranErr := <-exited
		cancel(fmt.Errorf("the manager ended: %w", errors.Join(ranErr, errors.New(tail(logFile)))))
		close(ended)
	}()
	err = p.waiter.For(waiting, fmt.Sprintf("%d machines to be provisioned", t.size), func(ctx context.Context) error {
		return t.await(p, ctx, t.size, func() { m.first = time.Since(start) })
	})
	m.wall = time.Since(start)
	if err == nil {
		err = m.look(ctx, cmd.Process.Pid, diagnostics)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	<-ended
	return m, err
}

// look reads the resources that the manager has used so far.
func (m *ran) look(ctx context.Context, pid int, diagnostics string) (err error) {
	if m.cpuAfter, err = cpuSoFar(); err != nil {
		return err
	}
	if m.peak, err = peakOf(pid); err != nil {
		return err
	}
	requests, busy, err := readManager(ctx, diagnostics)
	m.requests, m.busy = requests, time.Duration(busy*float64(time.Second))
	return err
}

// freeAddress returns an address on which no process listens.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4000):])
}

// peakOf returns the peak memory of a process, in MiB.
func peakOf(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			return float64(kib) / 1024, err
		}
	}
	return 0, errors.New("/proc doesn't say the peak memory")
}

// follow calls a function for each object of a kind of this provider, with its current state and after each change,
// until the function returns true.
func (p *plant) follow(ctx context.Context, kind string, see func(u *unstructured.Unstructured) (enough bool, err error)) error {
	for {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(infraGroup)
		list.SetKind(kind + "List")
		if err := p.client.List(ctx, list); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		for i := range list.Items {
			if enough, err := see(&list.Items[i]); enough || err != nil {
				return err
			}
		}
		watch, err := p.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		for event := range watch.ResultChan() {
			u, is := event.Object.(*unstructured.Unstructured)
			if !is || u.GetKind() != kind {
				break // the watch has ended: start again
			}
			if enough, err := see(u); enough || err != nil {
				watch.Stop()
				return err
			}
		}
		watch.Stop()
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// provisioned counts objects that are provisioned.
type provisioned struct {
	names map[string]bool
	first func()
}

// note returns the number of provisioned objects after an object was seen.
func (p *provisioned) note(u *unstructured.Unstructured) int {
	if is, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "provisioned"); is {
		if len(p.names) == 0 {
			p.first()
		}
		p.names[u.GetName()] = true
	}
	return len(p.names)
}

// awaitMachinesOf watches until as many LibvirtMachines of the Cluster bench are provisioned.
func (p *plant) awaitMachinesOf(ctx context.Context, size int, first func()) error {
	seen := &provisioned{names: map[string]bool{}, first: first}
	return p.follow(ctx, "LibvirtMachine", func(u *unstructured.Unstructured) (bool, error) {
		return u.GetLabels()["cluster.x-k8s.io/cluster-name"] == "bench" && seen.note(u) >= size, nil
	})
}
