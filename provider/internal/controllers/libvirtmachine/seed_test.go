package libvirtmachine

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestTopology: the topology of a kubelet has valid label values, also if the names aren't valid.
func TestTopology(t *testing.T) {
	for name, tc := range map[string]struct{ host, domain, wantDomain, wantHost string }{
		"names":                       {host: "rack1-a", domain: "Rack_1.x", wantDomain: "Rack_1.x", wantHost: "rack1-a"},
		"no failure domain":           {host: "rack1-a", wantDomain: "rack1-a", wantHost: "rack1-a"},
		"long names":                  {host: strings.Repeat("a.b", 30), domain: strings.Repeat("d", 64)},
		"names with other characters": {host: "a", domain: "room 1/left", wantHost: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &scope{host: &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: tc.host}, Spec: infrav1.LibvirtHostSpec{FailureDomain: tc.domain}}}
			domain, host := s.topology()
			for got, want := range map[string]string{domain: tc.wantDomain, host: tc.wantHost} {
				g.Expect(validation.IsValidLabelValue(got)).To(BeEmpty(), got)
				g.Expect(got).ToNot(BeEmpty())
				if want != "" {
					g.Expect(got).To(Equal(want))
				}
			}
		})
	}
}
