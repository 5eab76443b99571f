// Command flannel sets up the pod network of a node with flannel's packages and its back ends vxlan and host-gw.
// flannel's own command does not build if the module of one of its other back ends can't be downloaded.
//
// It runs in a pod with the host's network. It reads the network from net-conf.json, and the name of the node from
// NODE_NAME. It also writes the CNI configuration, for which flannel's manifest has init containers and a plug-in.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

// resync is the interval of checks of the packet filter rules, in seconds.
const resync = 30

func main() {
	network := flag.String("net-config-path", "/etc/kube-flannel/net-conf.json", "file with the pod network, in flannel's format")
	cni := flag.String("cni-config-path", "/etc/cni/net.d/10-flannel.conflist", "file for the CNI configuration")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *network, *cni)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, networkFile, cniFile string) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	subnets, err := kube.NewSubnetManager(ctx, "", "", "flannel.alpha.coreos.com", networkFile, true)
	if err != nil {
		return fmt.Errorf("reading the pod CIDR of the node: %w", err)
	}
	config, err := subnets.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("reading %s: %w", networkFile, err)
	}
	family, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	external, err := ipmatch.LookupExtIface("", "", "", family, ipmatch.PublicIPOpts{})
	if err != nil {
		return fmt.Errorf("finding the network interface to other nodes: %w", err)
	}
	selected, err := backend.NewManager(ctx, subnets, external).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	pods, err := selected.RegisterNetwork(ctx, &tasks, config)
	if err != nil {
		return fmt.Errorf("setting up the back end %s: %w", config.BackendType, err)
	}
	filter := &nftables.NFTablesManager{}
	if err := filter.Init(ctx); err != nil {
		return err
	}
	lease := pods.Lease()
	if err := filter.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network, ip.IP6Net{}, ip.IP6Net{}, lease, resync, false); err != nil {
		return fmt.Errorf("writing the masquerade rules: %w", err)
	}
	filter.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	if err := writeCNI(cniFile, lease.Subnet.String(), pods.MTU()); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	tasks.Go(func() { pods.Run(ctx) })
	if err := subnets.CompleteLease(ctx, lease, &tasks); err != nil {
		return fmt.Errorf("marking the network of the node as available: %w", err)
	}
	tasks.Wait()
	return nil
}

// writeCNI writes a CNI configuration that connects pods to a bridge, with addresses of the node's pod CIDR.
func writeCNI(file, subnet string, mtu int) error {
	list := map[string]any{
		"cniVersion": "1.0.0", "name": "flannel",
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "mtu": mtu,
				"ipam": map[string]any{
					"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": subnet}}},
					"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
		},
	}
	content, err := json.Marshal(list)
	if err != nil {
		return err
	}
	// The container runtime reads a file as soon as it exists.
	part := filepath.Join(filepath.Dir(file), ".flannel")
	return errors.Join(os.WriteFile(part, content, 0o644), os.Rename(part, file))
}
