package libvirthost

import (
	"os"
	"regexp"
)

// endOf is what libvirt writes into the log of a domain when that ends.
var endOf = regexp.MustCompile(`(?m)^[^\n]*: shutting down, reason=(\S+)$`)

// Ends are the reasons why a domain has ended each time so far, the first one first, in libvirt's words:
// "shutdown" when its guest has shut down, and "destroyed" when somebody took the power from it.
func (h *Host) Ends(domain string) ([]string, error) {
	content, err := os.ReadFile(h.path("log", "qemu", domain+".log"))
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, match := range endOf.FindAllSubmatch(content, -1) {
		reasons = append(reasons, string(match[1]))
	}
	return reasons, nil
}
