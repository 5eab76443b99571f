package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

const (
	patience = 10 * time.Minute
	kubectl  = "kubernetes-v1.36.3/kubectl"
)

// TestMain runs the tests in a sandbox, so that none of their testbeds is left behind.
func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(func() error {
		_, err := testbed.Tools(context.Background(), &testbed.Progress{})
		_, kubectlErr := pinned.FindTool(context.Background(), kubectl)
		return errors.Join(err, kubectlErr, testbed.PrepareGuest(), testbed.PrepareBalancer())
	}, m.Run))
}

// user is a user of a testbed.
type user struct {
	// testbed and clusterctl are the programs, and dir is the testbed's folder.
	testbed, clusterctl, dir string
}

func newUser(ctx context.Context, t *testing.T, g *WithT) *user {
	t.Helper()
	g.Expect(testbed.NoteSources()).To(Succeed())
	tools, err := testbed.Tools(ctx, &testbed.Progress{})
	g.Expect(err).ToNot(HaveOccurred())
	folder, err := os.MkdirTemp("/tmp", "testbed-") // the testbed's own sandbox has another /run
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() { g.Expect(os.RemoveAll(folder)).To(Succeed()) })
	u := &user{testbed: filepath.Join(folder, "testbed"), clusterctl: tools["clusterctl"], dir: filepath.Join(folder, "bed")}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", u.testbed, ".").CombinedOutput()
	g.Expect(err).ToNot(HaveOccurred(), string(out))
	return u
}

// run runs a program with a standard input and returns its standard output and standard error.
func (u *user) run(ctx context.Context, stdin, program string, args ...string) (stdout, stderr string, err error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "TESTBED_STAGE=", folderVariable+"="+u.dir, "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
	command.Stdin = strings.NewReader(stdin)
	var out, errOut strings.Builder
	command.Stdout, command.Stderr = &out, &errOut
	err = command.Run()
	return out.String(), errOut.String(), err
}

// output runs a program and returns its standard output. The test fails if the program fails.
func (u *user) output(ctx context.Context, g Gomega, program string, args ...string) string {
	stdout, stderr, err := u.run(ctx, "", program, args...)
	g.Expect(err).ToNot(HaveOccurred(), "%v: %s%s", args, stdout, stderr)
	return stdout
}

// management returns the configuration and a client of a management cluster from outside of the sandbox.
func (u *user) management(g *WithT, folder ...string) (*rest.Config, client.Client) {
	config, err := clientcmd.BuildConfigFromFlags("", u.kubeconfig(folder...))
	g.Expect(err).ToNot(HaveOccurred())
	c, err := client.New(config, client.Options{})
	g.Expect(err).ToNot(HaveOccurred())
	return config, c
}

func (u *user) kubeconfig(folder ...string) string {
	return filepath.Join(append(append([]string{u.dir}, folder...), "kubeconfig")...)
}

// TestTestbed checks that a testbed shows its logs and its hosts, that a cluster of the unchanged flavor haproxy runs
// there, and that clusterctl moves it to the second management cluster without restarting or recreating its domains.
func TestTestbed(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	u := newUser(ctx, t, g)
	for _, command := range []string{"logs", "virsh"} {
		_, stderr, err := u.run(ctx, "", u.testbed, command)
		g.Expect(err).To(HaveOccurred())
		g.Expect(stderr).To(Equal("testbed: no testbed runs: start one with make testbed-up\n"))
	}
	t.Cleanup(func() {
		if t.Failed() {
			stdout, stderr, err := u.run(context.WithoutCancel(ctx), "", u.testbed, "logs", "p") // up, pods, hosts
			t.Log(stdout[max(0, len(stdout)-100_000):], stderr, err)
		}
	})
	g.Expect(u.output(ctx, g, u.testbed, "up")).To(ContainSubstring(u.kubeconfig()))
	_, stderr, err := u.run(ctx, "", u.testbed, "up")
	g.Expect(err).To(HaveOccurred())
	g.Expect(stderr).To(ContainSubstring("a testbed runs already"))
	u.readsLogs(ctx, g)
	u.talksToHosts(ctx, g)

	_, first := u.management(g)
	u.follow(ctx, g, "Clusters")
	machines := waitForCluster(ctx, g, first)
	domains := u.domains(ctx, g)
	g.Expect(u.output(ctx, g, u.testbed, "logs")).To(MatchRegexp(`\nhosts/host-[ab][12]/default\.demo-lb\.[0-9a-f]+\n`))

	g.Expect(u.output(ctx, g, u.testbed, "up", "--share-hosts")).To(ContainSubstring("clusterctl --kubeconfig " + u.kubeconfig() + " move"))
	u.output(ctx, g, u.testbed, "up", "--second") // it already runs, which isn't an error
	_, second := u.management(g, secondFolder)
	g.Expect(list(ctx, g, second, libvirtHosts)).To(HaveLen(len(testbed.DefaultHosts)))
	g.Expect(u.output(ctx, g, u.testbed, "logs")).To(ContainSubstring("\nsecond/kube-apiserver\n"))
	u.output(ctx, g, u.clusterctl, "move", "--kubeconfig="+u.kubeconfig(), "--to-kubeconfig="+u.kubeconfig(secondFolder))
	g.Expect(waitForCluster(ctx, g, second)).To(Equal(machines))
	g.Expect(u.domains(ctx, g)).To(Equal(domains), "the numbers of domains change when they are restarted")
	g.Expect(list(ctx, g, first, libvirtMachines)).To(BeEmpty())

	cluster := newObject("cluster.x-k8s.io/v1beta2", "Cluster")
	cluster.SetNamespace("default")
	cluster.SetName("demo")
	g.Expect(second.Delete(ctx, cluster)).To(Succeed())
	g.Eventually(func() error { return second.Get(ctx, client.ObjectKeyFromObject(cluster), cluster) }).WithTimeout(patience).Should(MatchError(apierrors.IsNotFound, "not found"))
	for host, names := range u.domains(ctx, g) {
		g.Expect(names).ToNot(ContainSubstring("default."), host)
	}

	out := u.follow(ctx, g, "Moving to another management cluster")
	g.Expect(out).To(MatchRegexp(`(?m)^demo-md-0-\S+ +demo `), "machines in the second management cluster")
	tables := regexp.MustCompile(`(?s) Id +Name +State\n(.*?)\n\n`).FindAllString(out, -1)
	g.Expect(tables).To(HaveLen(2))
	g.Expect(tables[1]).To(Equal(tables[0]))
	g.Expect(list(ctx, g, first, libvirtMachines)).To(BeEmpty())
	u.output(ctx, g, u.testbed, "down")
	g.Expect(u.dir).ToNot(BeAnExistingFile())
}

// TestHostsAreSharedFromTheBeginning checks that a running second management cluster doesn't get the hosts later.
func TestHostsAreSharedFromTheBeginning(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted string
		opts   secondOptions
		err    string
	}{
		"shared, requested":         {`{"shareHosts":true}`, secondOptions{ShareHosts: true}, ""},
		"shared, not requested":     {`{"shareHosts":true}`, secondOptions{}, ""},
		"not shared, requested":     {`{"shareHosts":false}`, secondOptions{ShareHosts: true}, "was started without the hosts"},
		"not shared, not requested": {`{"shareHosts":false}`, secondOptions{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			g.Expect(os.Mkdir(filepath.Join(dir, secondFolder), 0o755)).To(Succeed())
			for file, content := range map[string]string{wantedFile: tc.wanted, readyFile: "it is ready"} {
				g.Expect(os.WriteFile(filepath.Join(dir, secondFolder, file), []byte(content), 0o644)).To(Succeed())
			}
			text, err := upSecond(dir, tc.opts)
			if tc.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.err)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(text).To(Equal("it is ready"))
		})
	}
}

// follow runs the first commands below a heading of the tutorial about the testbed and returns their output.
func (u *user) follow(ctx context.Context, g *WithT, heading string) string {
	page, err := os.ReadFile("../../docs/tutorials/testbed.md")
	g.Expect(err).ToNot(HaveOccurred())
	_, section, found := strings.Cut(string(page), "\n## "+heading+"\n")
	g.Expect(found).To(BeTrue())
	parts := strings.SplitN(section, "```", 3)
	g.Expect(parts).To(HaveLen(3))
	kubectlPath, err := pinned.FindTool(ctx, kubectl)
	g.Expect(err).ToNot(HaveOccurred())
	// The checkout of a user whose testbed already runs.
	checkout, err := os.MkdirTemp(filepath.Dir(u.dir), "checkout-")
	g.Expect(err).ToNot(HaveOccurred())
	for name, target := range map[string]string{
		"bin/testbed": u.testbed, "out/testbed": u.dir, "path/kubectl": kubectlPath, "path/clusterctl": u.clusterctl, "path/make": "/bin/true",
	} {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(checkout, name)), 0o755)).To(Succeed())
		g.Expect(os.Symlink(target, filepath.Join(checkout, name))).To(Succeed())
	}
	script := fmt.Sprintf("cd %s\nexport PATH=$PWD/path:$PATH KUBECONFIG=%s\n%s", checkout, u.kubeconfig(), parts[1])
	return u.output(ctx, g, "bash", "-eu", "-o", "pipefail", "-c", script)
}

// readsLogs checks that each component has a log, which can be found by the name or a part of it, and that kubectl logs
// shows the logs of pods.
func (u *user) readsLogs(ctx context.Context, g *WithT) {
	names := strings.Fields(u.output(ctx, g, u.testbed, "logs"))
	g.Expect(names).To(ContainElements("up", "testbed", "etcd", "kube-apiserver", "kube-controller-manager", "hosts/host-a1/libvirtd", "hosts/host-b1/libvirtd"))
	g.Expect(names).To(ContainElement(MatchRegexp("^pods/caplv-system/caplv-controller-manager-[a-z0-9-]+/manager$")))
	const starts = "Starting manager"
	g.Expect(u.output(ctx, g, u.testbed, "logs", "caplv-system")).To(ContainSubstring(starts))
	_, stderr, err := u.run(ctx, "", u.testbed, "logs", "nobody")
	g.Expect(err).To(HaveOccurred())
	g.Expect(stderr).To(Equal("testbed: no component with a log has \"nobody\" in its name: testbed logs lists them\n"))
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _, err = u.run(waiting, "", u.testbed, "logs", "-f", "kube-apiserver")
	g.Expect(err).To(MatchError(ContainSubstring("killed")), "logs -f runs until it is killed")

	config, first := u.management(g)
	clients, err := kubernetes.NewForConfig(config)
	g.Expect(err).ToNot(HaveOccurred())
	var pods corev1.PodList
	g.Expect(first.List(ctx, &pods, client.InNamespace("caplv-system"))).To(Succeed())
	g.Expect(pods.Items).To(HaveLen(1))
	content, err := clients.CoreV1().Pods("caplv-system").GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(string(content)).To(ContainSubstring(starts))
}

// talksToHosts checks that virsh gets its arguments and input, and that its status is returned.
func (u *user) talksToHosts(ctx context.Context, g *WithT) {
	g.Expect(u.output(ctx, g, u.testbed, "virsh", "host-b1", "net-list", "--name")).To(Equal("default\n\n"))
	stdout, _, err := u.run(ctx, "pool-info default\n", u.testbed, "virsh", "host-a1")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(stdout).To(ContainSubstring("State:          running"))
	_, stderr, err := u.run(ctx, "", u.testbed, "virsh", "host-a1", "domstate", "nobody")
	var exit *exec.ExitError
	g.Expect(errors.As(err, &exit)).To(BeTrue())
	g.Expect(exit.ExitCode()).To(Equal(1))
	g.Expect(stderr).To(ContainSubstring("failed to get domain 'nobody'"))
	_, stderr, err = u.run(ctx, "", u.testbed, "virsh", "host-c1", "list")
	g.Expect(err).To(HaveOccurred())
	g.Expect(stderr).To(Equal("testbed: usage: testbed virsh HOST [ARGS...], with one of the hosts host-a1, host-a2, host-b1\n"))
}

// domains returns the domains of all hosts with their UUIDs, and with their numbers since their last start.
func (u *user) domains(ctx context.Context, g *WithT) map[string]string {
	all := map[string]string{}
	for _, host := range testbed.DefaultHosts {
		for _, list := range [][]string{{"list", "--all"}, {"list", "--all", "--uuid"}} {
			all[host.Name] += strings.TrimSpace(u.output(ctx, g, u.testbed, append([]string{"virsh", host.Name}, list...)...))
		}
	}
	return all
}

const (
	machines        = "Machine"
	libvirtMachines = "LibvirtMachine"
	libvirtHosts    = "LibvirtHost"
)

var groups = map[string]string{
	machines: "cluster.x-k8s.io/v1beta2", libvirtMachines: "infrastructure.cluster.x-k8s.io/v1alpha1", libvirtHosts: "infrastructure.cluster.x-k8s.io/v1alpha1",
}

func newObject(group, kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(group)
	object.SetKind(kind)
	return object
}

func list(ctx context.Context, g Gomega, c client.Client, kind string) []unstructured.Unstructured {
	all := &unstructured.UnstructuredList{}
	all.SetAPIVersion(groups[kind])
	all.SetKind(kind + "List")
	g.Expect(c.List(ctx, all, client.InNamespace("default"))).To(Succeed())
	return all.Items
}

// waitForCluster waits until the cluster demo has a load balancer and three machines with nodes. It returns the specs
// of their LibvirtMachines by name.
func waitForCluster(ctx context.Context, g *WithT, c client.Client) map[string]any {
	specs := map[string]any{}
	g.Eventually(func(g Gomega) {
		clear(specs)
		for _, object := range list(ctx, g, c, libvirtMachines) {
			conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "True"))), object.GetName())
			specs[object.GetName()] = object.Object["spec"]
		}
		g.Expect(specs).To(And(HaveLen(4), HaveKey("demo-lb")))
		owned := list(ctx, g, c, machines)
		g.Expect(owned).To(HaveLen(3))
		for _, object := range owned {
			node, _, err := unstructured.NestedString(object.Object, "status", "nodeRef", "name")
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(node).To(Equal(object.GetName()))
		}
	}).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	return specs
}
