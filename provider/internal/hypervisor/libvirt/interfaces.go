package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// HasInterface implements hypervisor.Hypervisor. It asks for node devices, which libvirt knows from udev:
// its list of interfaces has only configured ones on some systems, and would lack others wrongly.
func (h *host) HasInterface(ctx context.Context, name string) (bool, error) {
	const doing = "looking up the network interface"
	return get(ctx, h, doing, name, func(client *golibvirt.Libvirt) (bool, error) {
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
			if is, err := isInterface(client, device, name); is || err != nil {
				return is, err
			}
		}
		if !sees {
			// Every host has that one. A daemon that doesn't see it, for lack of udev, sees no other either.
			return false, &hypervisor.Error{Operation: doing, Object: name, Reason: hypervisor.ErrUnsupported,
				Cause: errors.New("the daemon lists no network interfaces, not even lo")}
		}
		return false, nil
	})
}

// deviceNames matches the names of the node devices that an interface may be: net_, the interface's name
// and mostly its MAC address, with underscores for all but letters and digits.
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
		return false, nil // gone since it was listed
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
