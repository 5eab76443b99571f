// Package metricstest reads the metrics that are registered, for tests.
package metricstest

import (
	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Count returns the number of series of a metric that have a label with a value, and the sum of their values or, for
// a histogram, of their observations.
func Count(g gomega.Gomega, name, label, value string) (series int, sum float64) {
	families, err := metrics.Registry.Gather()
	g.Expect(err).ToNot(gomega.HaveOccurred())
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, has := range metric.GetLabel() {
				if family.GetName() == name && has.GetName() == label && has.GetValue() == value {
					series++
					sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return series, sum
}
