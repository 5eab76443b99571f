// Package seed makes the disk that a machine's first start is told by: cloud-init's NoCloud data
// source (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html). For images with Ignition it adds the
// configuration of the interfaces to the one that the bootstrap provider made.
//
// A seed has secrets in it. It is made in memory, and never written to a file of this machine.
package seed

import (
	"errors"
	"fmt"
	"net/netip"

	"sigs.k8s.io/yaml"
)

// label is what cloud-init finds the disk by.
const label = "cidata"

// maxSize is the most that the files of a seed may have together, in bytes. A Secret, from which
// user data comes, can't have more than 1 MiB.
const maxSize = 16 << 20

// Seed is what a machine is told at its first start.
type Seed struct {
	// InstanceID is the UUID of the machine. cloud-init starts anew when it changes.
	InstanceID string
	// Hostname is the name that the machine gets.
	Hostname string
	// AvailabilityZone is the failure domain that the machine is in, and Host the hypervisor that it runs on. Both
	// are for labels of the node, and may be empty.
	AvailabilityZone, Host string
	// UserData is the bootstrap data, byte by byte as the bootstrap provider made it.
	UserData []byte
	// Interfaces are how the machine's interfaces are to be configured. When there are none, the
	// image decides, which usually means DHCP on the first interface.
	Interfaces []Interface
}

// Interface is how a network interface is to be configured.
type Interface struct {
	// MAC is the interface's MAC address.
	MAC string
	// Addresses are the interface's own addresses with the length of their networks. DHCP when there are none.
	Addresses []netip.Prefix
	// DHCP asks for another address by DHCP besides those.
	DHCP bool
	// Gateways are where everything else goes, at most one for each address family.
	Gateways []netip.Addr
	// Metric of the routes to the gateways: the lower it is, the sooner they are used. The image decides when it is 0.
	Metric int
	// Nameservers are the DNS servers.
	Nameservers []netip.Addr
}

// ISO returns the seed as an image of an ISO 9660 file system with the label cidata, to be a disk of
// the machine. The same seed gives the same bytes.
func (s Seed) ISO() ([]byte, error) {
	files, err := s.files()
	if err != nil {
		return nil, fmt.Errorf("making a seed: %w", err)
	}
	size := 0
	for _, file := range files {
		size += len(file.content)
	}
	if size > maxSize {
		return nil, fmt.Errorf("making a seed: it has %d bytes, and at most %d are allowed", size, maxSize)
	}
	return writeISO(label, files), nil
}

// files returns the files of the data source, ordered by name.
func (s Seed) files() ([]isoFile, error) {
	if s.InstanceID == "" || s.Hostname == "" {
		return nil, errors.New("the instance ID or the host name is missing")
	}
	if len(s.UserData) == 0 {
		return nil, errors.New("the bootstrap data is empty")
	}
	values := map[string]string{"instance-id": s.InstanceID, "local-hostname": s.Hostname}
	for key, value := range map[string]string{"availability-zone": s.AvailabilityZone, "libvirt-host": s.Host} {
		if value != "" {
			values[key] = value
		}
	}
	metaData, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing meta-data: %w", err)
	}
	files := []isoFile{{name: "meta-data", content: metaData}}
	if len(s.Interfaces) > 0 {
		networkConfig, err := networkConfig(s.Interfaces)
		if err != nil {
			return nil, err
		}
		files = append(files, isoFile{name: "network-config", content: networkConfig})
	}
	return append(files, isoFile{name: "user-data", content: s.UserData}), nil
}
