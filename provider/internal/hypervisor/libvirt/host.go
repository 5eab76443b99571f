// Package libvirt implements package hypervisor with a libvirt daemon, over libvirt's own protocol.
//
// The library for the protocol has no time limits, trusts the host, and has calls that never return. Therefore each
// call has a time limit, after which the connection is closed; uploads and clones have their own connections with a
// watchdog; received packets are checked before the library reads them; each connection is a new object.
package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	// callLimit is the time limit of a call, after which its connection is closed.
	callLimit = 60 * time.Second
	// startFactor is the factor of the limit for starting a domain: allocating huge pages, or memory for PCI devices,
	// takes minutes.
	startFactor = 10
)

// host is a libvirt host. It implements hypervisor.Hypervisor.
type host struct {
	*session
	// dial and uri are for the separate connections of transfers.
	dial func(context.Context) (net.Conn, error)
	uri  string
	// limit is the time limit of a call.
	limit time.Duration
	// calls is the link for most calls, on the host's own session. storage is the one for storage pools, and starts the
	// one for starting domains: these may hang or take long.
	calls, storage, starts link
	// known caches the volumes of storage pools.
	known knownVolumes
	// uuid is the UUID of the hypervisor, known after the first call of Facts.
	uuid atomic.Value

	lock       sync.Mutex
	subscribed bool
	watches    map[chan string]bool
}

var _ hypervisor.Hypervisor = &host{}

// Connect opens a connection to a host. It doesn't retry.
func Connect(ctx context.Context, uri hosturi.URI, credentials Credentials) (hypervisor.Hypervisor, error) {
	dial, err := dialer(uri, credentials)
	if err != nil {
		return nil, &hypervisor.Error{Operation: "connecting to", Object: uri.String(), Reason: hypervisor.ErrInvalid, Cause: err}
	}
	h, err := connect(ctx, dial, uri.ConnectURI(), callLimit)
	if err != nil {
		return nil, failure("connecting to", uri.String(), err)
	}
	return h, nil
}

func connect(ctx context.Context, dial func(context.Context) (net.Conn, error), uri string, limit time.Duration) (*host, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	session, err := openSession(ctx, dial, uri)
	if err != nil {
		return nil, err
	}
	h := &host{session: session, dial: dial, uri: uri, limit: limit, watches: map[chan string]bool{}}
	h.calls = link{host: h, limit: limit, session: session}
	h.storage = link{host: h, limit: limit}
	h.starts = link{host: h, limit: startFactor * limit}
	return h, nil
}

func (h *host) Close() error {
	h.close()
	return nil
}

func (h *host) Network(ctx context.Context, name string) (hypervisor.Network, error) {
	return get(ctx, &h.calls, "looking up the network", name, func(client *golibvirt.Libvirt) (hypervisor.Network, error) {
		network, err := client.NetworkLookupByName(name)
		if err != nil {
			return hypervisor.Network{}, err
		}
		active, err := client.NetworkIsActive(network)
		if err != nil {
			return hypervisor.Network{}, err
		}
		onBridge, err := isOnLinuxBridge(client, network)
		return hypervisor.Network{Name: network.Name, Active: active == 1, LinuxBridge: onBridge}, err
	})
}

// isOnLinuxBridge reports whether a network uses a bridge of the kernel (https://libvirt.org/formatnetwork.html):
// macvtap and passthrough have no bridge, and other switches have a virtual port.
func isOnLinuxBridge(client *golibvirt.Libvirt, network golibvirt.Network) (bool, error) {
	text, err := client.NetworkGetXMLDesc(network, 0)
	if err != nil {
		return false, err
	}
	var element struct {
		Bridge struct {
			Name string `xml:"name,attr"`
		} `xml:"bridge"`
		VirtualPort *struct{} `xml:"virtualport"`
	}
	if err := xml.Unmarshal([]byte(text), &element); err != nil {
		return false, fmt.Errorf("%w: reading the XML of network %s: %w", errNonsense, network.Name, err)
	}
	return element.Bridge.Name != "" && element.VirtualPort == nil, nil
}

func (h *host) HasFilter(ctx context.Context, name string) (bool, error) {
	return get(ctx, &h.calls, "looking up the network filter", name, func(client *golibvirt.Libvirt) (bool, error) {
		_, err := client.NwfilterLookupByName(name)
		if code(err, golibvirt.ErrNoNwfilter) {
			return false, nil
		}
		return err == nil, err
	})
}

func (h *host) Watch(ctx context.Context) (hypervisor.Watch, error) {
	const doing = "watching the domains"
	if err := h.subscribe(ctx); err != nil {
		return hypervisor.Watch{}, failure(doing, "", err)
	}
	news := make(chan string)
	h.lock.Lock()
	h.watches[news] = true
	h.lock.Unlock()
	stop := func() {
		h.lock.Lock()
		defer h.lock.Unlock()
		if h.watches[news] {
			delete(h.watches, news)
			close(news)
		}
	}
	changed := hypervisor.Coalesce(news)
	domains, err := h.list(ctx, doing)
	if err != nil {
		stop()
		return hypervisor.Watch{}, err
	}
	go func() {
		select {
		case <-ctx.Done():
		case <-h.lost:
		}
		stop()
	}()
	return hypervisor.Watch{Domains: domains, Changed: changed}, nil
}

// subscribe subscribes to events once per connection: ending a subscription can block the library permanently.
func (h *host) subscribe(ctx context.Context) error {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.subscribed {
		return nil
	}
	events, err := do(ctx, h.session, h.limit, func(client *golibvirt.Libvirt) (<-chan any, error) {
		return client.SubscribeEvents(context.WithoutCancel(ctx), golibvirt.DomainEventIDLifecycle, nil)
	})
	if err != nil {
		return err
	}
	h.subscribed = true
	go func() {
		for event := range events { // until the connection is lost
			// The library's own LifecycleEvents would panic on an event of another type.
			if lifecycle, ok := event.(*golibvirt.DomainEventCallbackLifecycleMsg); ok {
				h.tell(formatUUID(lifecycle.Msg.Dom.UUID))
			}
		}
	}()
	return nil
}

// tell notifies all watches of an event of a domain.
func (h *host) tell(uuid string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for news := range h.watches {
		news <- uuid // never blocks: hypervisor.Coalesce reads
	}
}

// HasInterface implements hypervisor.Hypervisor. It lists node devices, which libvirt knows from udev. On some systems
// libvirt's list of interfaces has only the configured ones.
func (h *host) HasInterface(ctx context.Context, name string) (bool, error) {
	const doing = "looking up the network interface"
	return get(ctx, &h.calls, doing, name, func(client *golibvirt.Libvirt) (bool, error) {
		devices, _, err := client.ConnectListAllNodeDevices(1, uint32(golibvirt.ConnectListNodeDevicesCapNet))
		if err != nil {
			return false, err
		}
		sees := false
		mayBe := deviceNames(name)
		for _, device := range devices {
			sees = sees || deviceNames("lo").MatchString(device.Name)
			if !mayBe.MatchString(device.Name) {
				continue
			}
			if matches, err := isInterface(client, device, name); matches || err != nil {
				return matches, err
			}
		}
		if !sees {
			// Every host has the interface lo. A daemon without udev sees no interfaces.
			return false, &hypervisor.Error{Operation: doing, Object: name, Reason: hypervisor.ErrUnsupported,
				Cause: errors.New("the daemon lists no network interfaces, not even lo")}
		}
		return false, nil
	})
}

// deviceNames matches the possible names of an interface's node device: net_, the interface's name and usually its MAC
// address, with underscores for all characters but letters and digits.
func deviceNames(name string) *regexp.Regexp {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return regexp.MustCompile("^net_" + plain + "(_[0-9a-fA-F]{2})*$")
}

// isInterface reads the name of a node device's interface.
func isInterface(client *golibvirt.Libvirt, device golibvirt.NodeDevice, name string) (bool, error) {
	text, err := client.NodeDeviceGetXMLDesc(device.Name, 0)
	if code(err, golibvirt.ErrNoNodeDevice) {
		return false, nil // removed after the list
	}
	if err != nil {
		return false, err
	}
	var element struct {
		Interface string `xml:"capability>interface"`
	}
	if err := xml.Unmarshal([]byte(text), &element); err != nil {
		return false, fmt.Errorf("%w: reading the XML of node device %s: %w", errNonsense, device.Name, err)
	}
	return element.Interface == name, nil
}
