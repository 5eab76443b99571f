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
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/workload"
	"github.com/clusterctl-release/clusterctl-release/internal/unready"
)

// serveCommand runs the testbed. `up` starts it.
const serveCommand = "serve"

// doors is the number of management clusters that are reachable from outside of the sandbox, and serverVariables
// contain their addresses.
const doors = 2

var serverVariables = [doors]string{"TESTBED_SERVER", "TESTBED_SECOND_SERVER"}

// prepareToServe runs outside of the sandbox, and opens the connections to it.
func prepareToServe() error {
	for _, variable := range serverVariables {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return err
		}
		sandbox.Inherit(file)
		if err := os.Setenv(variable, listener.Addr().String()); err != nil {
			return err
		}
	}
	waiter, err := newWaiter()
	if err != nil {
		return err
	}
	return waiter.For(context.Background(), "tools, the release and the guests' images to be built", func(context.Context) error {
		return errors.Join(testbed.Prepare(), testbed.PrepareGuest(), testbed.PrepareBalancer())
	})
}

// stepLimit is the time limit for each step of starting a testbed. With empty caches, building takes many minutes.
const stepLimit = time.Hour

// newWaiter returns a waiter that writes what the testbed waits for to a file, which up shows.
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

// serve runs the testbed in the sandbox until it is stopped.
func serve() int {
	if err := runTestbed(); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	return 0
}

// server is a testbed with its files in a folder outside of the sandbox.
type server struct {
	dir    string
	waiter unready.Waiter
	bed    *testbed.Testbed
	hosts  *testbed.Hosts
	player *workload.Player
}

func runTestbed() (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	s := &server{}
	if s.dir, err = folder(); err != nil {
		return err
	}
	if s.waiter, err = newWaiter(); err != nil {
		return err
	}
	s.waiter.Limit = 10 * time.Minute // builds are complete
	variables, err := testbed.GuestVariables()
	if err != nil {
		return err
	}
	s.bed, err = testbed.Start(ctx, testbed.Options{Variables: variables, Shared: s.dir, Server: "https://" + os.Getenv(serverVariables[0])})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.bed.Stop()) }()
	if err := s.startFirst(ctx); err != nil {
		return err
	}
	if err := replace(filepath.Join(s.dir, readyFile), fmt.Appendf(nil, instructions, s.dir)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-asked:
	}
	second, startErr := s.startSecond(ctx)
	if second != nil {
		defer func() { err = errors.Join(err, second.Stop()) }()
	}
	if startErr != nil { // the first one continues
		fmt.Fprintln(os.Stderr, "testbed: starting the second management cluster:", startErr)
		if err := replace(filepath.Join(s.dir, secondFolder, failedFile), []byte(startErr.Error())); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// startFirst installs the provider and starts the hosts.
func (s *server) startFirst(ctx context.Context) error {
	if err := s.install(ctx, s.bed, 0); err != nil {
		return err
	}
	if err := s.bed.ServeGuest(ctx); err != nil {
		return err
	}
	err := s.waiter.For(ctx, "the libvirt hosts to start", func(ctx context.Context) (err error) {
		s.hosts, err = s.bed.StartHosts(ctx, testbed.DefaultHosts)
		return err
	})
	if err != nil {
		return err
	}
	if s.player, err = s.bed.PlayWorkloads(ctx, s.hosts.All); err != nil {
		return err
	}
	return s.register(ctx, s.bed)
}

// startSecond starts the second management cluster with the provider, and registers the hosts there if requested. A
// returned cluster has to be stopped, also after an error.
func (s *server) startSecond(ctx context.Context) (*testbed.Testbed, error) {
	own := filepath.Join(s.dir, secondFolder)
	wanted, err := readSecondOptions(s.dir)
	if err != nil {
		return nil, err
	}
	second, err := testbed.Start(ctx, testbed.Options{NetworkOf: s.bed, Shared: own, Server: "https://" + os.Getenv(serverVariables[1])})
	if err != nil {
		return second, err
	}
	if err := s.install(ctx, second, 1); err != nil {
		return second, err
	}
	if err := second.JoinWorkloads(ctx, s.player); err != nil {
		return second, err
	}
	if wanted.ShareHosts {
		if err := s.register(ctx, second); err != nil {
			return second, err
		}
	}
	return second, replace(filepath.Join(own, readyFile), fmt.Appendf(nil, secondInstructions, s.dir))
}

// install opens a connection to a management cluster and installs Cluster API and the provider there.
func (s *server) install(ctx context.Context, bed *testbed.Testbed, door int) error {
	listener, err := net.FileListener(sandbox.Inherited(door))
	if err != nil {
		return fmt.Errorf("taking over the door to the API server: %w", err)
	}
	go forward(listener, net.JoinHostPort(bed.ControlPlane.Address().String(), "6443"))
	waiter := s.waiter
	waiter.Show = func(ctx context.Context) string {
		return unready.List(ctx, bed.Client, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	}
	return waiter.For(ctx, "Cluster API and the provider to be installed", func(ctx context.Context) error { return bed.Init(ctx) })
}

// register creates the hosts' objects in a management cluster, and waits until they are ready there.
func (s *server) register(ctx context.Context, bed *testbed.Testbed) error {
	if err := s.hosts.RegisterIn(ctx, bed); err != nil {
		return err
	}
	libvirtHost := schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1", Kind: "LibvirtHost"}
	waiter := s.waiter
	waiter.Show = func(ctx context.Context) string { return unready.List(ctx, bed.Client, libvirtHost) }
	return waiter.For(ctx, "the LibvirtHosts to be ready", func(ctx context.Context) error {
		return unready.Until(ctx, bed.Client, len(testbed.DefaultHosts), libvirtHost)
	})
}

const instructions = `The testbed is ready: Cluster API, the provider, and three libvirt hosts in two failure domains.

  export KUBECONFIG=%[1]s/kubeconfig
  kubectl get libvirthosts
  clusterctl --config %[1]s/repository/clusterctl.yaml generate cluster demo --infrastructure libvirt \
    --kubernetes-version v1.36.3 --control-plane-machine-count 1 --worker-machine-count 3 | kubectl apply -f -
  kubectl get machines -w
  bin/testbed logs
  bin/testbed virsh host-a1 list --all

hack/tools/tool clusterctl prints the path of a clusterctl. docs/tutorials/testbed.md says more. make testbed-down takes all of it
away.
`

const secondInstructions = `The second management cluster is ready: Cluster API and the provider.

  clusterctl --kubeconfig %[1]s/kubeconfig move --to-kubeconfig %[1]s/second/kubeconfig
  kubectl --kubeconfig %[1]s/second/kubeconfig get machines
`

// forward forwards connections from outside to the API server.
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
