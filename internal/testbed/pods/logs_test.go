package pods_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// logs reads the logs of a pod's container as kubectl does.
type logs struct {
	client kubernetes.Interface
	pod    string
	// follower follows the first run, and next reads more of it.
	follower io.Closer
	next     *bufio.Scanner
}

func logsOf(g *WithT, config *rest.Config, pod string) *logs {
	clients, err := kubernetes.NewForConfig(config)
	g.Expect(err).ToNot(HaveOccurred())
	return &logs{client: clients, pod: pod}
}

func (l *logs) request(options corev1.PodLogOptions) *rest.Request {
	return l.client.CoreV1().Pods("default").GetLogs(l.pod, &options)
}

func (l *logs) read(ctx context.Context, options corev1.PodLogOptions) (string, error) {
	stream, err := l.request(options).Stream(ctx) // as kubectl does: DoRaw hides the text of errors
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(stream)
	return string(content), errors.Join(err, stream.Close())
}

// say makes the container write a line.
func say(g *WithT, address, text string) {
	response, err := http.Get("http://" + address + ":8000/say?text=" + url.QueryEscape(text))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
}

// firstRun checks that the output of a container, its end, and new output are shown, and that unsupported options are
// refused.
func (l *logs) firstRun(ctx context.Context, g *WithT, address string) {
	stream, err := l.request(corev1.PodLogOptions{Follow: true}).Stream(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	l.follower, l.next = stream, bufio.NewScanner(stream)
	for _, line := range []string{"one", "two", "three"} {
		say(g, address, line)
		g.Expect(l.next.Scan()).To(BeTrue(), "a following client")
		g.Expect(l.next.Text()).To(Equal(line))
	}
	for want, options := range map[string]corev1.PodLogOptions{
		"one\ntwo\nthree\n": {},
		"two\nthree\n":      {TailLines: new(int64(2))},
		"":                  {TailLines: new(int64(0))},
		"one\nt":            {LimitBytes: new(int64(5))},
		"three":             {TailLines: new(int64(1)), LimitBytes: new(int64(5)), Follow: true},
	} {
		g.Expect(l.read(ctx, options)).To(Equal(want), "%v", options)
	}
	for want, options := range map[string]corev1.PodLogOptions{
		`previous terminated container "program" in pod "one" not found`:                {Previous: true},
		"option timestamps of the logs: the testbed doesn't store the times of lines":   {Timestamps: true},
		"option sinceSeconds of the logs: the testbed doesn't store the times of lines": {SinceSeconds: new(int64(1))},
		"option sinceTime of the logs: the testbed doesn't store the times of lines":    {SinceTime: new(metav1.NewTime(time.Now()))},
	} {
		_, err := l.read(ctx, options)
		g.Expect(err).To(MatchError(want))
	}
}

// secondRun checks that following the first run has ended, and that each run has its own logs.
func (l *logs) secondRun(ctx context.Context, g *WithT, address string) {
	g.Expect(l.next.Scan()).To(BeFalse(), l.next.Text())
	g.Expect(l.next.Err()).ToNot(HaveOccurred())
	g.Expect(l.follower.Close()).To(Succeed())
	say(g, address, "four")
	g.Expect(l.read(ctx, corev1.PodLogOptions{})).To(Equal("four\n"))
	g.Expect(l.read(ctx, corev1.PodLogOptions{Previous: true})).To(Equal("one\ntwo\nthree\n"))
	g.Expect(l.read(ctx, corev1.PodLogOptions{Previous: true, Follow: true, TailLines: new(int64(1))})).To(Equal("three\n"))
}

// node checks that the node has no other part of a kubelet, and that clients need a certificate of the cluster.
func (l *logs) node(ctx context.Context, g *WithT, config *rest.Config) {
	node, err := l.client.CoreV1().Nodes().Get(ctx, "node", metav1.GetOptions{})
	g.Expect(err).ToNot(HaveOccurred())
	address := fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	trusted, err := rest.HTTPClientFor(config)
	g.Expect(err).ToNot(HaveOccurred())
	response, err := trusted.Get(address + "/exec/default/one/program")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(io.ReadAll(response.Body)).To(BeEquivalentTo("the testbed's node serves logs only: exec, attach and port-forward aren't supported\n"))
	g.Expect(response.StatusCode).To(Equal(http.StatusNotImplemented))
	g.Expect(response.Body.Close()).To(Succeed())
	stranger, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	g.Expect(err).ToNot(HaveOccurred())
	_, err = stranger.Get(address + "/containerLogs/default/one/program")
	g.Expect(err).To(HaveOccurred()) // the text differs
}
