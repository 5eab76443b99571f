package guest_test

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest"
)

// TestSameImage checks that two builds of an image are equal.
func TestSameImage(t *testing.T) {
	for name, build := range map[string]func(context.Context, string, string) (string, error){"guest": guest.Image, "signed": guest.SignedImage, "balancer": guest.BalancerImage} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var sums [2][sha256.Size]byte
			for i := range sums {
				image, err := build(context.Background(), pinned.Root(t), t.TempDir())
				g.Expect(err).ToNot(HaveOccurred())
				content, err := os.ReadFile(image)
				g.Expect(err).ToNot(HaveOccurred())
				sums[i] = sha256.Sum256(content)
				left, err := filepath.Glob(filepath.Join(filepath.Dir(image), "*"))
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(left).To(ConsistOf(image))
			}
			g.Expect(sums[0]).To(Equal(sums[1]))
		})
	}
}
