package fleet_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/metricstest"
)

// TestMetricsOfAHost checks that a host with a session has metrics of its calls and its connection.
func TestMetricsOfAHost(t *testing.T) {
	const host = "host-with-metrics"
	f := newFixture(t, quick, host)
	f.Ensure(host, target(host))
	f.snapshot(host, reachable)
	calls, _ := metricstest.Count(f, "caplv_libvirt_call_duration_seconds", "host", host)
	f.Expect(calls).To(BeNumerically(">=", 3), "Connect, Watch, Facts")
	_, is := metricstest.Count(f, "caplv_libvirthost_reachable", "host", host)
	f.Expect(is).To(Equal(1.0))
	f.Forget(host)
	for _, name := range []string{"caplv_libvirt_call_duration_seconds", "caplv_libvirthost_reachable"} {
		series, _ := metricstest.Count(f, name, "host", host)
		f.Expect(series).To(BeZero(), name)
	}
}
