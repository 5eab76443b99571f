package libvirthost

import (
	"fmt"
	"path/filepath"
	"time"
)

// leaseTime is the duration of a lease that isn't renewed: the shortest that dnsmasq supports. Nothing releases the
// lease of a destroyed guest.
const leaseTime = 2 * time.Minute

// Left lists the leftovers of machines on the host except leases: domains, volumes, firmware variables and TPM states.
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

// Leases returns the ends of the current leases by MAC address.
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

// Forgets returns an error if the host still keeps the address of a guest that was deleted at a time: its lease must
// have ended, or end without another renewal.
func (h *Host) Forgets(mac string, gone time.Time) error {
	leases, err := h.Leases()
	if err != nil {
		return err
	}
	// The server writes whole seconds.
	if end, exists := leases[mac]; exists && end.After(gone.Add(leaseTime+time.Second)) {
		return fmt.Errorf("%s keeps the address of %s until %s, although the guest was deleted at %s and a lease lasts %s",
			h.options.Name, mac, end.Format(time.TimeOnly), gone.Format(time.TimeOnly), leaseTime)
	}
	return nil
}
