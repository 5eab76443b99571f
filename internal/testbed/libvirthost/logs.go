package libvirthost

import (
	"os"
	"regexp"
)

// endOf matches libvirt's line in a domain's log about its end.
var endOf = regexp.MustCompile(`(?m)^[^\n]*: shutting down, reason=(\S+)$`)

// QEMULog returns the content of a file in the folder of the logs of domains and consoles.
func (h *Host) QEMULog(name string) ([]byte, error) { return os.ReadFile(h.path("log", "qemu", name)) }

// Ends returns libvirt's reasons for all ends of a domain so far, the first one first: "shutdown" if its guest has shut
// down, and "destroyed" if it was powered off.
func (h *Host) Ends(domain string) ([]string, error) {
	content, err := h.QEMULog(domain + ".log")
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, match := range endOf.FindAllSubmatch(content, -1) {
		reasons = append(reasons, string(match[1]))
	}
	return reasons, nil
}
