package pods_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/controlplane"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/pods"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(func() error {
		_, err := testbed.Tools(context.Background(), &testbed.Progress{})
		return err
	}, m.Run))
}

// start starts a control plane and a runner with one image. It returns a client, the runner's folder, and the
// configuration of clients. All of it ends with the test, so that it can run again in the same sandbox.
func start(ctx context.Context, t *testing.T, g *WithT) (client.Client, string, *rest.Config) {
	t.Helper()
	dir, err := os.MkdirTemp(sandbox.Dir, "run-")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(os.Chmod(dir, 0o755)).To(Succeed()) // the users of containers need access
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", program, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	g.Expect(err).ToNot(HaveOccurred(), string(out))
	tools, err := testbed.Tools(ctx, &testbed.Progress{})
	g.Expect(err).ToNot(HaveOccurred())
	network, err := sandbox.NewNetwork("pods", netip.MustParsePrefix("10.88.0.0/16"))
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { g.Expect(network.Remove()).To(Succeed()) })
	plane, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(dir, "management"), Etcd: tools[testbed.Etcd], APIServer: tools[testbed.APIServer],
		ControllerManager: tools[testbed.ControllerManager], Address: network.Gateway(), Port: 6443,
	})
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(plane.Stop)
	mgr, err := ctrl.NewManager(plane.Config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
	g.Expect(err).ToNot(HaveOccurred())
	runner := &pods.Runner{
		Node: "node", Dir: filepath.Join(dir, "pods"), Network: network, APIServer: [2]string{network.Gateway().String(), "6443"}, CA: plane.CA,
		Images: map[string]pods.Image{"example.com/program": {Program: program, Entrypoint: "/bin/program", User: 1000}},
	}
	g.Expect(runner.SetupWithManager(ctx, mgr)).To(Succeed())
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	t.Cleanup(func() {
		cancel()
		g.Expect(<-ended).To(Succeed())
		runner.Stop()
	})
	c, err := client.New(plane.Config, client.Options{})
	g.Expect(err).ToNot(HaveOccurred())
	g.Eventually(func() error {
		return c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "default"}, &corev1.ServiceAccount{})
	}).WithTimeout(patience).Should(Succeed())
	return c, runner.Dir, plane.Config
}

const tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"

func newPod(name, image string) *corev1.Pod {
	user, yes := int64(2000), true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "program", Image: image, Args: []string{"/secret/key", tokenFile},
				Env: []corev1.EnvVar{
					{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "GREETING", Value: "hello $(POD) $(NOBODY) $$(POD)"},
				},
				Ports:           []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}},
				ReadinessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}}},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &user, ReadOnlyRootFilesystem: &yes},
				VolumeMounts:    []corev1.VolumeMount{{Name: "secret", MountPath: "/secret", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}}},
		},
	}
}

// TestPods checks that a pod waits for its Secret, has the parts of its spec, is restarted, and ends.
func TestPods(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	ctrl.SetLogger(logr.Discard())
	c, dir, config := start(ctx, t, g)
	pod := newPod("one", "example.com/program:v1")
	g.Expect(c.Create(ctx, pod)).To(Succeed())
	status := func(g Gomega) corev1.ContainerStatus {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(HaveLen(1))
		return pod.Status.ContainerStatuses[0]
	}
	eventually := func(ask func(g Gomega)) { g.Eventually(ask).WithTimeout(patience).Should(Succeed()) }

	eventually(func(g Gomega) {
		g.Expect(status(g).State.Waiting).To(HaveValue(And(
			HaveField("Reason", "ContainerCreating"), HaveField("Message", ContainSubstring(`"secret" not found`)))))
	})
	shown := logsOf(g, config, "one")
	_, err := shown.read(ctx, corev1.PodLogOptions{})
	g.Expect(err).To(MatchError(`container "program" in pod "one" is waiting to start`))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "secret"}, StringData: map[string]string{"key": "opensesame"}}
	g.Expect(c.Create(ctx, secret)).To(Succeed())
	eventually(func(g Gomega) { g.Expect(status(g).Ready).To(BeTrue()) })

	var got struct {
		User, Group int
		Host        string
		Env         []string
		Files       map[string]string
		Writable    bool
	}
	response, err := http.Get("http://" + pod.Status.PodIP + ":8000/")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(json.NewDecoder(response.Body).Decode(&got)).To(Succeed())
	g.Expect(response.Body.Close()).To(Succeed())
	g.Expect(got.User).To(Equal(2000))
	g.Expect(got.Group).To(Equal(1000))
	g.Expect(got.Host).To(Equal("one"))
	g.Expect(got.Env).To(ContainElements("POD=one", "GREETING=hello one $(NOBODY) $(POD)", "KUBERNETES_SERVICE_PORT=6443"))
	g.Expect(got.Files).To(HaveKeyWithValue("/secret/key", "opensesame"))
	g.Expect(got.Files[tokenFile]).To(HavePrefix("eyJ"))
	g.Expect(got.Writable).To(BeFalse())

	shown.firstRun(ctx, g, pod.Status.PodIP)

	// The program exits, and runs again.
	_, err = http.Get("http://" + pod.Status.PodIP + ":8000/exit")
	g.Expect(err).To(HaveOccurred())
	eventually(func(g Gomega) {
		now := status(g)
		g.Expect(now.RestartCount).To(Equal(int32(1)))
		g.Expect(now.LastTerminationState.Terminated).To(HaveValue(HaveField("ExitCode", int32(3))))
		g.Expect(now.Ready).To(BeTrue())
	})
	shown.secondRun(ctx, g, pod.Status.PodIP)
	shown.node(ctx, g, config)
	remove := func() {
		g.Expect(c.Delete(ctx, pod)).To(Succeed())
		eventually(func(g Gomega) {
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(MatchError(apierrors.IsNotFound, "not found"))
			g.Expect(filepath.Glob(filepath.Join(dir, "*", "volumes"))).To(BeEmpty())
			g.Expect(filepath.Glob("/run/netns/*")).To(BeEmpty())
		})
	}
	remove()

	// Unsupported pods have a reason.
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		reason string
	}{
		"image": {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com/other:v1" }, "ErrImagePull"},
		"root": {func(p *corev1.Pod) {
			root, yes := int64(0), true
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &root, RunAsNonRoot: &yes}
		}, "CreateContainerConfigError"},
		"host-network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "CreateContainerConfigError"},
		"host-path": {func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "CreateContainerConfigError"},
	} {
		pod = newPod(name, "example.com/program:v1")
		tc.change(pod)
		g.Expect(c.Create(ctx, pod)).To(Succeed())
		eventually(func(g Gomega) { g.Expect(status(g).State.Waiting).To(HaveValue(HaveField("Reason", tc.reason)), name) })
		remove()
	}
}
