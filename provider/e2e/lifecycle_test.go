package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

const lifecycle = "lifecycle"

var _ = Describe("A cluster outlives changes of its management", Label(lifecycle), func() {
	It("is moved there and back, and its provider is upgraded, while its nodes run on", func() {
		ctx := context.Background()
		created := newCluster(ctx, lifecycle, 1, nil)
		namespace := created.Cluster.Namespace
		name := created.Cluster.Name
		workload := management.GetWorkloadCluster(ctx, namespace, name)
		booted := boots(ctx, workload)
		Expect(booted).To(HaveLen(2))
		runsOn := func(by framework.ClusterProxy) {
			framework.WaitForMachinesReady(ctx, framework.WaitForMachinesReadyInput{Lister: by.GetClient(), Name: name, Namespace: namespace, Intervals: settings.GetIntervals(lifecycle, "wait-nodes-ready")})
			framework.VerifyClusterAvailable(ctx, framework.VerifyClusterAvailableInput{Getter: by.GetClient(), Name: name, Namespace: namespace})
			Expect(boots(ctx, workload)).To(Equal(booted), "nodes have started again, or are others")
		}

		By("Starting a second management cluster")
		second, err := testbed.Start(ctx, testbed.Options{Scheme: newScheme(), NetworkOf: bed})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(second.Stop)
		servers := releaseServers(ctx)
		other := framework.NewClusterProxy("second", second.Kubeconfig, newScheme())
		DeferCleanup(func() { other.Dispose(ctx) })
		DeferCleanup(func() { // where the spec fails between the moves
			if exists(ctx, other.GetClient(), manifest.Object{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Namespace: namespace, Name: name}) {
				framework.DeleteClusterAndWait(ctx, framework.DeleteClusterAndWaitInput{
					ClusterProxy: other, ClusterctlConfigPath: bed.ClusterctlConfig, Cluster: created.Cluster, ArtifactFolder: folderOf(lifecycle),
				}, settings.GetIntervals(lifecycle, "wait-delete-cluster")...)
			}
		})

		for i, server := range servers {
			By("Installing the provider in the second management cluster from " + server.name)
			server.install(ctx, second, i == 0)
			By("Moving the cluster there")
			moveAsPlanned(ctx, bed, second, namespace, fmt.Sprintf("there-%d", i))
			runsOn(other)
			By("Moving it back")
			moveAsPlanned(ctx, second, bed, namespace, fmt.Sprintf("back-%d", i))
			runsOn(management)
		}

		By("Upgrading the provider")
		addRelease("v0.1.0", "v0.2.0")
		_, err = bed.Clusterctl(ctx, "upgrade", "apply", "--infrastructure="+testbed.ManagerNamespace+"/libvirt:v0.2.0", "--wait-providers")
		Expect(err).ToNot(HaveOccurred())
		listed, err := bed.Clusterctl(ctx, "upgrade", "plan")
		Expect(err).ToNot(HaveOccurred())
		Expect(listed).To(MatchRegexp(`infrastructure-libvirt\s+caplv-system\s+InfrastructureProvider\s+v0\.2\.0`))
		runsOn(management)
		reachable(ctx, workload)
	})
})

// boots returns the boot IDs of nodes by their names: another ID is another start of the machine.
func boots(ctx context.Context, workload framework.ClusterProxy) map[string]string {
	var nodes corev1.NodeList
	Eventually(func() error { return workload.GetClient().List(ctx, &nodes) }).WithTimeout(podTimeout).Should(Succeed())
	ids := map[string]string{}
	for _, node := range nodes.Items {
		ids[node.Name] = node.Status.NodeInfo.BootID
	}
	return ids
}

// creating are the lines of clusterctl's log about objects that it creates in the target.
var creating = regexp.MustCompile(`(?m)^[\d:.]+ Creating (\w+)="([^"]+)" Namespace="([^"]*)"`)

// moveAsPlanned moves what belongs to the clusters of a namespace to another management cluster. The objects are those
// that `clusterctl release move-plan --live` has listed before, group by group, and nothing of them is left that it doesn't
// say so of.
func moveAsPlanned(ctx context.Context, from, to *testbed.Testbed, namespace, name string) {
	plan := planOf(ctx, from, namespace)
	folder := filepath.Join(folderOf(lifecycle), "move-"+name)
	clusterctl.Move(ctx, clusterctl.MoveInput{LogFolder: folder, ClusterctlConfigPath: bed.ClusterctlConfig, FromKubeconfigPath: from.Kubeconfig, ToKubeconfigPath: to.Kubeconfig, Namespace: namespace})
	log, err := os.ReadFile(filepath.Join(folder, "logs", namespace, "clusterctl-move.log"))
	Expect(err).ToNot(HaveOccurred())
	var made []manifest.Object
	for _, line := range creating.FindAllStringSubmatch(string(log), -1) {
		made = append(made, manifest.Object{Kind: line[1], Namespace: line[3], Name: line[2]})
	}
	for _, group := range plan.Groups {
		var planned []manifest.Object
		for _, moved := range group {
			planned = append(planned, manifest.Object{Kind: moved.Object.Kind, Namespace: moved.Object.Namespace, Name: moved.Object.Name})
			Expect(exists(ctx, to.Client, moved.Object)).To(BeTrue(), "%s in the target", moved.Object)
			Expect(exists(ctx, from.Client, moved.Object)).To(Equal(!moved.Deleted), "%s in the source", moved.Object)
		}
		Expect(len(made)).To(BeNumerically(">=", len(planned)), "clusterctl has created fewer objects than planned: %v", made)
		Expect(made[:len(planned)]).To(ConsistOf(planned))
		made = made[len(planned):]
	}
	Expect(made).To(BeEmpty(), "clusterctl has created more than planned")
	for _, left := range plan.LeftBehind {
		Expect(exists(ctx, to.Client, left.Object)).To(BeFalse(), "%s is left behind", left.Object)
	}
}

// plan is what `clusterctl release move-plan --format json` prints, as far as it is read here.
type plan struct {
	Stops  []json.RawMessage
	Groups [][]struct {
		Object  manifest.Object
		Deleted bool
	}
	LeftBehind []struct{ Object manifest.Object }
}

// planOf returns what `clusterctl release move-plan --live` says of a namespace.
func planOf(ctx context.Context, bed *testbed.Testbed, namespace string) plan {
	command := tool(ctx, nil, "move-plan", "--live", "--kubeconfig="+bed.Kubeconfig, "--namespace="+namespace, "--format=json")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	// It ends with 1 where objects are left behind.
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	Expect(err).ToNot(HaveOccurred(), stderr.String())
	var read plan
	Expect(json.Unmarshal(out, &read)).To(Succeed())
	Expect(read.Stops).To(BeEmpty())
	Expect(read.Groups).ToNot(BeEmpty())
	return read
}

func exists(ctx context.Context, c client.Client, o manifest.Object) bool {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(o.APIVersion)
	object.SetKind(o.Kind)
	err := c.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, object)
	if apierrors.IsNotFound(err) {
		return false
	}
	Expect(err).ToNot(HaveOccurred())
	return true
}

// addRelease adds a version of the provider to clusterctl's repository: the one that is there, under another version and in
// a series of its own.
func addRelease(version, added string) {
	release, err := bed.ReleaseFolder()
	Expect(err).ToNot(HaveOccurred())
	Expect(filepath.Base(release)).To(Equal(version))
	folder := filepath.Join(filepath.Dir(release), added)
	Expect(os.CopyFS(folder, os.DirFS(release))).To(Succeed())
	for file, change := range map[string]func(content []byte) []byte{
		"infrastructure-components.yaml": func(content []byte) []byte {
			return bytes.ReplaceAll(content, []byte(":"+version+"@"), []byte(":"+added+"@"))
		},
		"metadata.yaml": func(content []byte) []byte {
			return append(content, "- major: 0\n  minor: 2\n  contract: v1beta2\n"...)
		},
	} {
		file = filepath.Join(folder, file)
		content, err := os.ReadFile(file)
		Expect(err).ToNot(HaveOccurred())
		changed := change(content)
		Expect(changed).ToNot(Equal(content))
		Expect(os.WriteFile(file, changed, 0o644)).To(Succeed())
	}
}
