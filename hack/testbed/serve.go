package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	"github.com/clusterctl-release/clusterctl-release/internal/unready"
)

// serveCommand runs the testbed. It is what `up` starts.
const serveCommand = "serve"

// serverVariable has the address by which the API server is reached from outside of the sandbox.
const serverVariable = "TESTBED_SERVER"

// prepareToServe runs outside of the sandbox, and opens the door to it.
func prepareToServe() error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	sandbox.Inherit(file)
	if err := os.Setenv(serverVariable, listener.Addr().String()); err != nil {
		return err
	}
	waiter, err := newWaiter()
	if err != nil {
		return err
	}
	return waiter.For(context.Background(), "tools, the release and the guests' images to be built", func(context.Context) error {
		return errors.Join(testbed.Prepare(), testbed.PrepareGuest(), testbed.PrepareBalancer())
	})
}

// stepLimit is how long each step of starting a testbed may take. On a machine whose caches are empty, building takes
// many minutes.
const stepLimit = time.Hour

// newWaiter returns what says in a file, which up shows, what the testbed waits for.
func newWaiter() (unready.Waiter, error) {
	dir, err := folder()
	if err != nil {
		return unready.Waiter{}, err
	}
	file, err := os.OpenFile(filepath.Join(dir, waitingFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return unready.Waiter{}, fmt.Errorf("opening the file that says what the testbed waits for: %w", err)
	}
	return unready.Waiter{Out: io.MultiWriter(os.Stderr, file), Limit: stepLimit, Every: 30 * time.Second}, nil
}

// serve runs the testbed in the sandbox until it is asked to end.
func serve() int {
	if err := runTestbed(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	return 0
}

func runTestbed() (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	listener, err := net.FileListener(sandbox.Inherited(0))
	if err != nil {
		return fmt.Errorf("taking over the door to the API server: %w", err)
	}
	dir, err := folder()
	if err != nil {
		return err
	}
	variables, err := testbed.GuestVariables()
	if err != nil {
		return err
	}
	waiter, err := newWaiter()
	if err != nil {
		return err
	}
	waiter.Limit = 10 * time.Minute // nothing is built any more
	bed, err := testbed.Start(ctx, testbed.Options{Variables: variables, Shared: dir, Server: "https://" + os.Getenv(serverVariable)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	go forward(listener, net.JoinHostPort(bed.Network.Gateway().String(), "6443"))
	waiter.Show = func(ctx context.Context) string {
		return unready.List(ctx, bed.Client, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	}
	if err := waiter.For(ctx, "Cluster API and the provider to be installed", func(ctx context.Context) error { return bed.Init(ctx) }); err != nil {
		return err
	}
	if err := bed.ServeGuest(ctx); err != nil {
		return err
	}
	waiter.Show = nil
	var hosts *testbed.Hosts
	err = waiter.For(ctx, "the libvirt hosts to start", func(ctx context.Context) (err error) {
		hosts, err = bed.StartHosts(ctx, testbed.DefaultHosts)
		return err
	})
	if err != nil {
		return err
	}
	if err := hosts.Register(ctx); err != nil {
		return err
	}
	if _, err := bed.PlayWorkloads(ctx, hosts.All); err != nil {
		return err
	}
	libvirtHost := schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1", Kind: "LibvirtHost"}
	waiter.Show = func(ctx context.Context) string { return unready.List(ctx, bed.Client, libvirtHost) }
	err = waiter.For(ctx, "the LibvirtHosts to be ready", func(ctx context.Context) error {
		return unready.Until(ctx, bed.Client, len(testbed.DefaultHosts), libvirtHost)
	})
	if err != nil {
		return err
	}
	told := fmt.Sprintf(instructions, dir)
	ready := filepath.Join(dir, readyFile)
	if err := os.WriteFile(ready+".new", []byte(told), 0o644); err != nil {
		return err
	}
	if err := os.Rename(ready+".new", ready); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

const instructions = `The testbed is ready: Cluster API, the provider, and three libvirt hosts in two failure domains.

  export KUBECONFIG=%[1]s/kubeconfig
  kubectl get libvirthosts
  clusterctl --config %[1]s/repository/clusterctl.yaml generate cluster demo --infrastructure libvirt \
    --kubernetes-version v1.36.3 --control-plane-machine-count 1 --worker-machine-count 3 | kubectl apply -f -
  kubectl get machines -w

hack/tools/tool clusterctl prints the path of a clusterctl. make testbed-down takes all of it away.
`

// forward passes connections from outside on to the API server.
func forward(listener net.Listener, to string) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = outside.Close() }()
			inside, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = inside.Close() }()
			var group sync.WaitGroup
			for _, pair := range [][2]net.Conn{{outside, inside}, {inside, outside}} {
				group.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].(*net.TCPConn).CloseWrite()
				})
			}
			group.Wait()
		}()
	}
}
