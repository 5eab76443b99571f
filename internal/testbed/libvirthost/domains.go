package libvirthost

import (
	"fmt"
	"os"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
)

// Domain is a domain of a host in any state.
type Domain struct{ Name, UUID string }

// Domains returns all domains of the host.
func (h *Host) Domains() ([]Domain, error) {
	client, err := h.Connect()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Disconnect() }()
	found, _, err := client.ConnectListAllDomains(1, 0)
	if err != nil {
		return nil, err
	}
	var domains []Domain
	for _, domain := range found {
		domains = append(domains, Domain{Name: domain.Name, UUID: uuid.UUID(domain.UUID).String()})
	}
	return domains, nil
}

// DomainXML returns libvirt's XML of a running domain.
func (h *Host) DomainXML(id string) (string, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return "", err
	}
	client, err := h.Connect()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Disconnect() }()
	domain, err := client.DomainLookupByUUID(golibvirt.UUID(parsed))
	if err != nil {
		return "", err
	}
	return client.DomainGetXMLDesc(domain, 0)
}

// HugepageKiB returns the memory in huge pages of a domain's process in KiB.
func (h *Host) HugepageKiB(domain string) (kib int64, err error) {
	pid, err := os.ReadFile(h.path("run", "qemu", domain+".pid"))
	if err != nil {
		return 0, err
	}
	file := fmt.Sprintf("/proc/%s/status", strings.TrimSpace(string(pid)))
	status, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	_, text, found := strings.Cut(string(status), "\nHugetlbPages:")
	if !found {
		return 0, fmt.Errorf("%s has no HugetlbPages", file)
	}
	_, err = fmt.Sscanf(text, "%d kB", &kib)
	return kib, err
}
