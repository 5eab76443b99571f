package pods

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// firstLook is the interval of probes until a container is ready for the first time, in place of its period, so that
// tests wait less.
const firstLook = 200 * time.Millisecond

// prober runs the probes of one container.
type prober struct {
	container           *container
	readiness, liveness *check
	grace               time.Duration
}

// check is one probe.
type check struct {
	spec   corev1.Probe
	url    string
	header http.Header
}

func newProber(c *container, object *corev1.Pod, spec *corev1.Container) (*prober, error) {
	p := &prober{container: c}
	if spec.StartupProbe != nil {
		return nil, &waiting{"CreateContainerConfigError", "the testbed's pods have no startup probes"}
	}
	if object.Spec.TerminationGracePeriodSeconds != nil {
		p.grace = time.Duration(*object.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	var err error
	if p.readiness, err = newCheck(c, spec, spec.ReadinessProbe); err != nil {
		return nil, err
	}
	p.liveness, err = newCheck(c, spec, spec.LivenessProbe)
	return p, err
}

func newCheck(c *container, spec *corev1.Container, probe *corev1.Probe) (*check, error) {
	if probe == nil {
		return nil, nil
	}
	get := probe.HTTPGet
	if get == nil {
		return nil, &waiting{"CreateContainerConfigError", "the testbed's pods have probes by httpGet only"}
	}
	port := int32(get.Port.IntValue())
	if get.Port.Type == intstr.String {
		for _, named := range spec.Ports {
			if named.Name == get.Port.StrVal {
				port = named.ContainerPort
			}
		}
	}
	if port == 0 {
		return nil, &waiting{"CreateContainerConfigError", "a probe's port is " + get.Port.String() + ", which the container doesn't have"}
	}
	host := get.Host
	if host == "" {
		host = c.pod.network.Address.String()
	}
	result := &check{spec: *probe, header: http.Header{}}
	result.url = fmt.Sprintf("%s://%s/%s", strings.ToLower(string(get.Scheme)), net.JoinHostPort(host, strconv.Itoa(int(port))), strings.TrimPrefix(get.Path, "/"))
	for _, header := range get.HTTPHeaders {
		result.header.Add(header.Name, header.Value)
	}
	return result, nil
}

func (p *prober) start(ctx context.Context, process *sandbox.Process) {
	if p.readiness != nil {
		go p.readiness.repeat(ctx, firstLook, func(well bool) { p.container.setReady(ctx, well) })
	}
	if p.liveness != nil {
		go p.liveness.repeat(ctx, 0, func(well bool) {
			if !well {
				process.Stop(p.grace)
			}
		})
	}
}

// repeat probes until the context ends, and reports each result that was the same for as many times as the probe's
// threshold.
func (c *check) repeat(ctx context.Context, untilWell time.Duration, report func(well bool)) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport, Timeout: time.Duration(max(1, c.spec.TimeoutSeconds)) * time.Second}
	period := time.Duration(max(1, c.spec.PeriodSeconds)) * time.Second
	wait := time.Duration(c.spec.InitialDelaySeconds) * time.Second
	var row int32
	last := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		well := c.ask(ctx, client)
		if ctx.Err() != nil {
			return
		}
		if row++; well != last {
			last, row = well, 1
		}
		if well && row >= c.spec.SuccessThreshold {
			untilWell = 0
			report(true)
		}
		if !well && row >= c.spec.FailureThreshold {
			report(false)
		}
		wait = period
		if untilWell > 0 {
			wait = untilWell
		}
	}
}

func (c *check) ask(ctx context.Context, client *http.Client) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return false
	}
	request.Header = c.header
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}
