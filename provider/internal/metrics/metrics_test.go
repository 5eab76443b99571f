package metrics

import (
	"errors"
	"reflect"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// TestEveryCallIsMeasured checks that each method of Hypervisor except Close has its own series. The connection is nil,
// so that each call panics after it was counted.
func TestEveryCallIsMeasured(t *testing.T) {
	g := NewWithT(t)
	AddHost("measured")
	defer RemoveHost("measured")
	connection := reflect.ValueOf(Measured("measured", nil))
	calls := reflect.TypeFor[hypervisor.Hypervisor]()
	for i := range calls.NumMethod() {
		method := calls.Method(i)
		var arguments []reflect.Value
		for j := range method.Type.NumIn() {
			arguments = append(arguments, reflect.Zero(method.Type.In(j)))
		}
		func() {
			defer func() { _ = recover() }()
			connection.MethodByName(method.Name).Call(arguments)
		}()
		if method.Name != "Close" {
			g.Expect(seriesOf(g, "caplv_libvirt_call_duration_seconds", map[string]string{"host": "measured", "call": method.Name})).To(Equal(1), method.Name)
		}
	}
}

// TestSeriesAreDeletedWithTheHost checks that later calls don't create the series again.
func TestSeriesAreDeletedWithTheHost(t *testing.T) {
	g := NewWithT(t)
	of := map[string]string{"host": "goes"}
	AddHost("goes")
	AddHost("stays")
	Connected("stays", time.Now(), nil)
	defer RemoveHost("stays")
	ended := Transfer("goes")
	failed := &hypervisor.Error{Operation: "x", Reason: hypervisor.ErrDenied}
	Connected("goes", time.Now(), failed)
	Transfer("goes")(5, errors.New("broken"))
	Orphans.WithLabelValues("goes").Set(1)
	g.Expect(testutil.ToFloat64(callErrors.WithLabelValues("goes", "Connect", "Denied"))).To(Equal(1.0))
	g.Expect(testutil.ToFloat64(transfersRunning.WithLabelValues("goes"))).To(Equal(1.0))
	g.Expect(testutil.ToFloat64(transfers.WithLabelValues("goes", "failed"))).To(Equal(1.0))
	g.Expect(testutil.ToFloat64(transferredBytes.WithLabelValues("goes"))).To(Equal(5.0))
	g.Expect(seriesOf(g, "", of)).To(Equal(6))

	RemoveHost("goes")
	ended(1, nil)
	Connected("goes", time.Now(), failed)
	g.Expect(seriesOf(g, "", of)).To(BeZero())
	g.Expect(seriesOf(g, "", map[string]string{"host": "stays"})).To(Equal(1))
}

// TestCollectedGauges checks the metrics whose values are computed when they are collected.
func TestCollectedGauges(t *testing.T) {
	g := NewWithT(t)
	Reachable(func() map[string]bool { return map[string]bool{"a": true, "b": false} })
	Reservations(func() int { return 3 })
	NoFit("NoRoom", "NotReady")
	NoFit("NoRoom")
	g.Expect(testutil.ToFloat64(noFit.WithLabelValues("NoRoom"))).To(Equal(2.0))
	for name, want := range map[string][]float64{"caplv_libvirthost_reachable": {1, 0}, "caplv_placement_reservations": {3}} {
		var got []float64
		families, err := ctrlmetrics.Registry.Gather()
		g.Expect(err).ToNot(HaveOccurred())
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == name {
					got = append(got, metric.GetGauge().GetValue())
				}
			}
		}
		g.Expect(got).To(Equal(want), name)
	}
}

// TestNamesAndHelp checks the conventions of Prometheus.
func TestNamesAndHelp(t *testing.T) {
	g := NewWithT(t)
	AddHost("named")
	defer RemoveHost("named")
	Connected("named", time.Now(), errors.New("broken"))
	Transfer("named")(1, nil)
	NoFit("NoRoom")
	for _, metric := range All {
		problems, err := testutil.CollectAndLint(metric)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(problems).To(BeEmpty())
		g.Expect(ctrlmetrics.Registry.Register(metric)).To(BeAssignableToTypeOf(prometheus.AlreadyRegisteredError{}), "already registered")
	}
}

// seriesOf counts the series of a metric, or of all, that have some labels.
func seriesOf(g *WithT, name string, labels map[string]string) int {
	families, err := ctrlmetrics.Registry.Gather()
	g.Expect(err).ToNot(HaveOccurred())
	count := 0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			has := map[string]string{}
			for _, label := range metric.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			matches := name == "" || name == family.GetName()
			for label, value := range labels {
				matches = matches && has[label] == value
			}
			if matches {
				count++
			}
		}
	}
	return count
}
