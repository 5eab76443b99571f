package testbed

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// TestTemplatesFit checks that all sizes of machines in the provider's templates are small in a testbed.
func TestTemplatesFit(t *testing.T) {
	g := NewWithT(t)
	templates, err := filepath.Glob(filepath.Join(pinned.Root(t), "provider", "templates", "cluster-template*.yaml"))
	g.Expect(err).ToNot(HaveOccurred())
	seen := map[string]bool{}
	for _, template := range templates {
		content, err := os.ReadFile(template)
		g.Expect(err).ToNot(HaveOccurred())
		for _, size := range regexp.MustCompile(`\$\{(LIBVIRT_\w+_(?:CPUS|MEMORY|SIZE))\b`).FindAllSubmatch(content, -1) {
			g.Expect(guestSizes()).To(HaveKey(string(size[1])), "%s", template)
			seen[string(size[1])] = true
		}
	}
	g.Expect(seen).To(HaveLen(len(guestSizes())))
}
