// Package metrics has the metrics of this provider, in the registry of controller-runtime.
//
// Series with a host exist as long as the host is known: the label has no more values than there are LibvirtHosts.
package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// The labels.
const (
	hostLabel   = "host"
	callLabel   = "call"
	reasonLabel = "reason"
	resultLabel = "result"
)

// All has the registered metrics.
var All []prometheus.Collector

// ofHosts has the metrics with a host label.
var ofHosts []interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

var (
	calls = ofHost(prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "caplv_libvirt_call_duration_seconds", Help: "Duration of calls to a libvirt host, including failed calls.",
		Buckets: []float64{.002, .01, .05, .25, 1, 5, 30, 120},
	}, []string{hostLabel, callLabel}))
	callErrors = ofHost(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_libvirt_call_errors_total", Help: "Calls to a libvirt host that failed. NotFound is a usual answer to a look-up.",
	}, []string{hostLabel, callLabel, reasonLabel}))
	reachable = register(&reachability{desc: prometheus.NewDesc("caplv_libvirthost_reachable",
		"Whether there is a connection to the host: 1 or 0.", []string{hostLabel}, nil)})
	transfersRunning = ofHost(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "caplv_image_transfers_running", Help: "Images that are being brought to the host now.",
	}, []string{hostLabel}))
	transfers = ofHost(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_image_transfers_total", Help: "Attempts to bring an image to the host that have ended: succeeded or failed.",
	}, []string{hostLabel, resultLabel}))
	transferredBytes = ofHost(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_image_transferred_bytes_total", Help: "Bytes of images that were downloaded for the host.",
	}, []string{hostLabel}))
	noFit = register(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_placement_no_fit_total", Help: "Attempts to place a machine that found no host, by each reason for which a host did not fit.",
	}, []string{reasonLabel}))
	_ = register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "caplv_placement_reservations", Help: "Machines with reserved room on a host that is not in their spec yet.",
	}, func() float64 {
		if count := reservations.Load(); count != nil {
			return float64((*count)())
		}
		return 0
	}))

	// Orphans is the number of orphans on each host.
	Orphans = ofHost(prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "caplv_libvirthost_orphans", Help: "Number of missing LibvirtMachines that have domains or volumes on the host.",
	}, []string{hostLabel}))
	// DeletedImages counts the images that were deleted from each host.
	DeletedImages = ofHost(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_images_deleted_total", Help: "Images, whole or half, that were deleted from a host because no machine used them.",
	}, []string{hostLabel}))
	// DeletedBytes counts the bytes that the deleted images used.
	DeletedBytes = ofHost(prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "caplv_images_deleted_bytes_total", Help: "Bytes that deleted images used in a host's storage pools.",
	}, []string{hostLabel}))
)

var (
	reservations atomic.Pointer[func() int]

	lock  sync.RWMutex
	known = map[string]bool{}
)

func register[C prometheus.Collector](collector C) C {
	metrics.Registry.MustRegister(collector)
	All = append(All, collector)
	return collector
}

// ofHost registers a metric whose series are deleted with their host.
func ofHost[C interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}](collector C) C {
	ofHosts = append(ofHosts, collector)
	return register(collector)
}

// AddHost begins counting for a host.
func AddHost(host string) {
	lock.Lock()
	defer lock.Unlock()
	known[host] = true
}

// RemoveHost deletes the series of a host. Calls and transfers that end later aren't counted.
func RemoveHost(host string) {
	lock.Lock()
	defer lock.Unlock()
	delete(known, host)
	for _, metric := range ofHosts {
		metric.DeletePartialMatch(prometheus.Labels{hostLabel: host})
	}
}

// of counts for a known host.
func of(host string, count func()) {
	lock.RLock()
	defer lock.RUnlock()
	if known[host] {
		count()
	}
}

// Reachable sets the function that returns all hosts, and whether they are connected.
func Reachable(hosts func() map[string]bool) { reachable.hosts.Store(&hosts) }

// reachability collects the hosts' connections.
type reachability struct {
	desc  *prometheus.Desc
	hosts atomic.Pointer[func() map[string]bool]
}

func (r *reachability) Describe(out chan<- *prometheus.Desc) { out <- r.desc }

func (r *reachability) Collect(out chan<- prometheus.Metric) {
	hosts := r.hosts.Load()
	if hosts == nil {
		return
	}
	for host, connected := range (*hosts)() {
		value := 0.0
		if connected {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, value, host)
	}
}

// Transfer counts a transfer of an image to a host, until ended is called with the uploaded bytes and the error.
func Transfer(host string) (ended func(bytes int64, err error)) {
	of(host, func() { transfersRunning.WithLabelValues(host).Inc() })
	return func(bytes int64, err error) {
		of(host, func() {
			transfersRunning.WithLabelValues(host).Dec()
			transferredBytes.WithLabelValues(host).Add(float64(bytes))
			result := "succeeded"
			if err != nil {
				result = "failed"
			}
			transfers.WithLabelValues(host, result).Inc()
		})
	}
}

// NoFit counts an attempt to place a machine that found no host, once for each reason.
func NoFit(reasons ...string) {
	for _, reason := range reasons {
		noFit.WithLabelValues(reason).Inc()
	}
}

// Reservations sets the function that counts the machines with reserved room.
func Reservations(count func() int) { reservations.Store(&count) }

func observe(host, call, reason string, took time.Duration) {
	of(host, func() {
		calls.WithLabelValues(host, call).Observe(took.Seconds())
		if reason != "" {
			callErrors.WithLabelValues(host, call, reason).Inc()
		}
	})
}
