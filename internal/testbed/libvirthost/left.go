package libvirthost

import (
	"fmt"
	"path/filepath"
	"time"
)

// leaseTime is how long a guest has an address if it doesn't ask again: the shortest that dnsmasq
// gives. Nobody gives an address back for a guest that was destroyed.
const leaseTime = 2 * time.Minute

// Left lists what is on the host that machines have made, but for leases of addresses: domains,
// volumes, variables of firmware, and states of TPMs.
func (h *Host) Left() ([]string, error) {
	var left []string
	domains, err := h.Domains()
	if err != nil {
		return nil, err
	}
	for _, domain := range domains {
		left = append(left, "domain "+domain.Name)
	}
	volumes, err := h.Volumes()
	if err != nil {
		return nil, err
	}
	for _, name := range volumes {
		left = append(left, "volume "+name)
	}
	for kind, pattern := range map[string]string{
		"firmware variables ": h.path("lib", "qemu", "nvram", "*"), "TPM state ": h.path("lib", "swtpm", "*"),
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			left = append(left, kind+filepath.Base(file))
		}
	}
	return left, nil
}

// Leases are the ends of the leases of addresses, by MAC address. libvirt leaves out those that have
// ended.
func (h *Host) Leases() (map[string]time.Time, error) {
	client, err := h.Connect()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Disconnect() }()
	network, err := client.NetworkLookupByName(Network)
	if err != nil {
		return nil, err
	}
	leases, _, err := client.NetworkGetDhcpLeases(network, nil, 1, 0)
	if err != nil {
		return nil, err
	}
	ends := map[string]time.Time{}
	for _, lease := range leases {
		for _, mac := range lease.Mac {
			ends[mac] = time.Unix(lease.Expirytime, 0)
		}
	}
	return ends, nil
}

// Forgets says whether the host no longer keeps the address of a guest that was gone at a time: it
// has no lease, or one that ends by itself since nobody asks for more.
func (h *Host) Forgets(mac string, gone time.Time) error {
	leases, err := h.Leases()
	if err != nil {
		return err
	}
	// The server writes whole seconds.
	if end, exists := leases[mac]; exists && end.After(gone.Add(leaseTime+time.Second)) {
		return fmt.Errorf("%s keeps the address of %s until %s, though the guest was gone at %s and a lease is for %s",
			h.options.Name, mac, end.Format(time.TimeOnly), gone.Format(time.TimeOnly), leaseTime)
	}
	return nil
}
