package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ip runs lines of the command ip until one fails.
func ip(lines ...string) error {
	command := exec.Command("ip", "-batch", "-")
	command.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		return fmt.Errorf("setting up the network (ip %s): %w: %s", strings.Join(lines, "; "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// Network is an Ethernet in the sandbox. The sandbox itself has its first address, and other namespaces can join it.
type Network struct {
	bridge string
	prefix netip.Prefix

	mutex sync.Mutex
	last  netip.Addr
	made  int
}

// NewNetwork creates a network with the addresses of a prefix, on a bridge with a name of at most 8 characters.
func NewNetwork(bridge string, prefix netip.Prefix) (*Network, error) {
	n := &Network{bridge: bridge, prefix: prefix, last: prefix.Masked().Addr().Next()}
	err := ip(
		"link add "+bridge+" type bridge stp_state 0 forward_delay 0",
		fmt.Sprintf("address add %s/%d dev %s", n.last, prefix.Bits(), bridge),
		"link set "+bridge+" up")
	if err != nil {
		return nil, err
	}
	// The sandbox routes to the networks of hosts.
	return n, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// Remove removes the network. Namespaces in it stay until they are removed.
func (n *Network) Remove() error {
	return ip("link delete " + n.bridge)
}

// Gateway returns the sandbox's address in the network.
func (n *Network) Gateway() netip.Addr {
	return n.prefix.Masked().Addr().Next()
}

// AddAddress gives the sandbox another address, which may be outside of the network's prefix.
func (n *Network) AddAddress(address netip.Addr) error {
	return ip(fmt.Sprintf("address add %s/32 dev %s", address, n.bridge))
}

// RemoveAddress removes an address of AddAddress.
func (n *Network) RemoveAddress(address netip.Addr) error {
	return ip(fmt.Sprintf("address del %s/32 dev %s", address, n.bridge))
}

// AddRoute routes the addresses of a prefix through an address in the network.
func (n *Network) AddRoute(to netip.Prefix, via netip.Addr) error {
	return ip(fmt.Sprintf("route add %s via %s", to, via))
}

// Namespace is a network namespace with one interface, eth0, in a Network.
type Namespace struct {
	// Name of the namespace.
	Name string
	// Address of the interface.
	Address netip.Addr
	// device is the other end of the interface.
	device string
	// network is the prefix of the joined Network.
	network netip.Prefix
}

// Join creates a namespace with the network's next address. Names are unique in a sandbox.
func (n *Network) Join(name string) (*Namespace, error) {
	n.mutex.Lock()
	n.last = n.last.Next()
	n.made++
	address, device := n.last, fmt.Sprintf("%s-%d", n.bridge, n.made)
	n.mutex.Unlock()
	if !n.prefix.Contains(address) {
		return nil, fmt.Errorf("the network %s has no address left for %s", n.prefix, name)
	}
	if err := ip(
		"netns add "+name,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", device, name),
		fmt.Sprintf("link set %s master %s up", device, n.bridge)); err != nil {
		return nil, err
	}
	namespace := &Namespace{Name: name, Address: address, device: device, network: n.prefix.Masked()}
	for _, line := range []string{
		"link set lo up",
		fmt.Sprintf("address add %s/%d dev eth0", address, n.prefix.Bits()),
		"link set eth0 up",
		fmt.Sprintf("route add default via %s", n.Gateway()),
	} {
		if err := namespace.ip(line); err != nil {
			return nil, err
		}
	}
	return namespace, nil
}

// ip runs the command ip with the arguments of a line in the namespace.
func (ns *Namespace) ip(line string) error {
	arguments := append([]string{"-netns", ns.Name}, strings.Fields(line)...)
	if out, err := exec.Command("ip", arguments...).CombinedOutput(); err != nil {
		return fmt.Errorf("setting up the network of %s (ip %s): %w: %s", ns.Name, line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Cut silently drops every packet between the Network and the namespace: new connections wait, and open ones receive
// nothing. Other networks of the namespace still work. Don't call it again before Fix.
func (ns *Namespace) Cut() error {
	// The table of local addresses is the first rule by default, and would accept packets for them.
	for _, line := range []string{
		"rule add pref 3 table local", "rule del pref 0 table local",
		"rule add pref 1 iif eth0 type blackhole", "rule add pref 2 to " + ns.network.String() + " type blackhole",
	} {
		if err := ns.ip(line); err != nil {
			return err
		}
	}
	return nil
}

// Fix undoes Cut.
func (ns *Namespace) Fix() error {
	for _, line := range []string{"rule add pref 0 table local", "rule del pref 3", "rule del pref 2", "rule del pref 1"} {
		if err := ns.ip(line); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes the namespace. Its processes lose their network.
func (ns *Namespace) Remove() error {
	// The kernel would remove the interface too, some time after the last process has ended.
	return ip("netns delete "+ns.Name, "link delete "+ns.device)
}

// enter moves the calling thread into the namespace.
func (ns *Namespace) enter() error {
	file, err := os.Open("/run/netns/" + ns.Name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace %s: %w", ns.Name, err)
	}
	return nil
}

// Listen listens on a TCP address in the namespace.
func (ns *Namespace) Listen(ctx context.Context, address string) (net.Listener, error) {
	type result struct {
		listener net.Listener
		err      error
	}
	results := make(chan result, 1)
	go func() {
		// Not unlocked: the thread is in another network namespace and ends with this function.
		runtime.LockOSThread()
		if err := ns.enter(); err != nil {
			results <- result{err: err}
			return
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		results <- result{listener, err}
	}()
	got := <-results
	if got.err != nil {
		return nil, fmt.Errorf("listening on %s in %s: %w", address, ns.Name, got.err)
	}
	return got.listener, nil
}
