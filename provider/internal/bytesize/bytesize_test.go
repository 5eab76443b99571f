package bytesize_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/bytesize"
)

// TestUnitFor checks that compared amounts have one unit, and that rounding doesn't hide a shortage.
func TestUnitFor(t *testing.T) {
	const mebi, gibi, tebi = 1 << 20, 1 << 30, 1 << 40
	for _, tc := range []struct {
		available, needed int64
		down, up          string
	}{
		{available: 6089644 << 10, needed: 60 * gibi, down: "5.8Gi", up: "60Gi"},
		{available: 60*gibi - 1, needed: 60 * gibi, down: "59.99Gi", up: "60Gi"},
		{available: 60 * gibi, needed: 60*gibi + 1, down: "60Gi", up: "60.01Gi"},
		{available: 0, needed: 2 * tebi, down: "0", up: "2Ti"},
		{available: 100 * mebi, needed: 60 * gibi, down: "100Mi", up: "61440Mi"},
		{available: 600 << 10, needed: 60 * gibi, down: "0.58Mi", up: "61440Mi"},
		{available: 7, needed: 9, down: "7B", up: "9B"},
	} {
		g := NewWithT(t)
		unit := bytesize.UnitFor(tc.available, tc.needed)
		g.Expect([]string{unit.Down(tc.available), unit.Up(tc.needed)}).To(Equal([]string{tc.down, tc.up}))
	}
}
