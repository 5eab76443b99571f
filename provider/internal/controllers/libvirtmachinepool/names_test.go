package libvirtmachinepool

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestMachineNames: for each valid name of a pool, the names of its machines are valid names of nodes and hosts. The
// names of two pools' machines differ.
func TestMachineNames(t *testing.T) {
	seen := map[string]string{}
	for _, length := range []int{1, 43, 44, 45, 53, 54, 63, 100, 253} {
		for name, pool := range map[string]string{
			"letters":            strings.Repeat("a", length),
			"another at its end": strings.Repeat("a", length-1) + "b",
			"dots":               strings.Repeat("a.", length/2) + "c",
			"dashes":             "d" + strings.Repeat("-", max(0, length-2)) + "d",
		} {
			t.Run(fmt.Sprintf("%s, %d characters", name, len(pool)), func(t *testing.T) {
				g := NewWithT(t)
				for _, number := range []int{1, 10_000, 999_999_999} {
					machine := machineName(pool, number)
					g.Expect(validation.IsDNS1123Subdomain(machine)).To(BeEmpty(), machine)
					g.Expect(len(machine)).To(BeNumerically("<=", validation.DNS1123LabelMaxLength), machine)
					g.Expect(machine).To(HaveSuffix(fmt.Sprint("-", number)))
					other, there := seen[machine]
					g.Expect(!there || other == pool).To(BeTrue(), "%s is a machine of %s, too", machine, other)
					seen[machine] = pool
				}
			})
		}
	}
}
