package hypervisor_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

func TestIsOwnName(t *testing.T) {
	const uuid = "00000000-0000-4000-8000-00000000000a"
	for name, own := range map[string]bool{
		uuid + "-root": true, uuid + "-seed": true, uuid + "-root.0123456789ab": true, uuid + "-disk-data": true,
		"00000000-0000-4000-8000-00000000000A-seed": true, "caplv-image-sha256-0.qcow2": true, "CAPLV-image": true, "caplv-manager-x": true,
		"ubuntu-2404": false, "image-" + uuid: false, "my-caplv-image": false, uuid + ".qcow2": false,
	} {
		NewWithT(t).Expect(hypervisor.IsOwnName(name)).To(Equal(own), name)
	}
}
