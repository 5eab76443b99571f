package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// eachMetric calls a function for each line of a metric in Prometheus's text format.
func eachMetric(text []byte, name string, do func(has func(label, value string) bool, value float64)) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line, is := strings.CutPrefix(lines.Text(), name+"{")
		if !is {
			continue
		}
		labels, value, _ := strings.Cut(line, "} ")
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("reading the metric %q: %w", lines.Text(), err)
		}
		do(func(label, value string) bool { return strings.Contains(","+labels+",", ","+label+`="`+value+`",`) }, number)
	}
	return lines.Err()
}

// writes returns the number of writing requests that the API server has answered, by resource, without the creation of
// LibvirtMachines, which the benchmark or a pool creates.
func (p *plant) writes(ctx context.Context) (map[string]int, error) {
	clients, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		return nil, err
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	writes := map[string]int{}
	err = eachMetric(text, "apiserver_request_total", func(has func(label, value string) bool, value float64) {
		for _, resource := range []string{"libvirtmachines", "libvirtmachinepools", "libvirthosts", "events"} {
			isWrite := has("verb", "PATCH") || has("verb", "PUT") || resource == "events" && has("verb", "POST")
			if isWrite && has("resource", resource) {
				writes[resource] += int(value)
			}
		}
	})
	return writes, err
}

// readManager reads the manager's metrics: the number of its requests, and the seconds that its workers for
// LibvirtMachines were busy.
func readManager(ctx context.Context, address string) (requests int, busy float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, 0, fmt.Errorf("reading the manager's metrics: %w", err)
	}
	sent := 0.0
	err = errors.Join(
		eachMetric(text, "rest_client_requests_total", func(_ func(label, value string) bool, value float64) { sent += value }),
		eachMetric(text, "controller_runtime_reconcile_time_seconds_sum", func(has func(label, value string) bool, value float64) {
			if has("controller", "libvirtmachine") {
				busy += value
			}
		}))
	if err == nil && (sent == 0 || busy == 0) {
		err = errors.New("the manager's metrics don't say how many requests it has sent, or how long it has reconciled")
	}
	return int(sent), busy, err
}
