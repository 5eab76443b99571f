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

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
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
	return errors.Join(testbed.Prepare(), testbed.PrepareGuest(), testbed.PrepareBalancer())
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
	bed, err := testbed.Start(ctx, testbed.Options{Variables: variables, Shared: dir, Server: "https://" + os.Getenv(serverVariable)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	go forward(listener, net.JoinHostPort(bed.Network.Gateway().String(), "6443"))
	if err := bed.Init(ctx); err != nil {
		return err
	}
	if err := bed.ServeGuest(ctx); err != nil {
		return err
	}
	hosts, err := bed.StartHosts(ctx, testbed.DefaultHosts)
	if err != nil {
		return err
	}
	if err := hosts.Register(ctx); err != nil {
		return err
	}
	if _, err := bed.PlayWorkloads(ctx, hosts.All); err != nil {
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
