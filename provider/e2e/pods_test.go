package e2e

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reachable checks the network of a workload cluster: a pod on one node asks one on another node, by the address of the
// pod and by the name of a Service, which kube-proxy and the cluster's DNS make.
func reachable(ctx context.Context, proxy framework.ClusterProxy) {
	By("Checking that pods reach each other")
	c := proxy.GetClient()
	var nodes corev1.NodeList
	Expect(c.List(ctx, &nodes)).To(Succeed())
	Expect(len(nodes.Items)).To(BeNumerically(">", 1), "nodes")
	server := startServer(ctx, c, nodes.Items[0].Name)
	asking := newClient(nodes.Items[1].Name, fmt.Sprintf("http://%s:%d/health", server.Status.PodIP, serverPort), "http://server.default.svc.cluster.local/health")
	Expect(c.Create(ctx, asking)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(asking), asking)).To(Succeed())
		g.Expect(asking.Status.Phase).To(Equal(corev1.PodSucceeded))
	}).WithTimeout(podTimeout).WithPolling(time.Second).Should(Succeed())
}

// podTimeout is how long a pod may take. The processor is emulated.
const podTimeout = 15 * time.Minute

// serverPort is where the server listens.
const serverPort = 8080

// startServer starts a pod on a node, with a Service, that answers by HTTP: CoreDNS, whose image each node has, with its
// plug-in health.
func startServer(ctx context.Context, c client.Client, node string) *corev1.Pod {
	var dns appsv1.Deployment
	Expect(c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &dns)).To(Succeed())
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "server", Labels: map[string]string{"app": "server"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName:    node,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "coredns", Image: dns.Spec.Template.Spec.Containers[0].Image, Args: []string{"-conf", "/etc/coredns/Corefile"},
			VolumeMounts: []corev1.VolumeMount{{Name: "configuration", MountPath: "/etc/coredns"}},
		}},
		Volumes: []corev1.Volume{{Name: "configuration", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}},
		}}},
	}}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": fmt.Sprintf(".:5353 {\n  health :%d\n}\n", serverPort)}},
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: meta.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(serverPort)}}}},
		pod,
	} {
		Expect(c.Create(ctx, object)).To(Succeed())
	}
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.PodIP).ToNot(BeEmpty())
	}).WithTimeout(podTimeout).WithPolling(time.Second).Should(Succeed())
	return pod
}

// newClient is a pod on a node that asks URLs until each has answered. It is the node's own curl, in an image that has
// nothing but a program.
func newClient(node string, urls ...string) *corev1.Pod {
	const libraries = "/node/usr/lib/x86_64-linux-gnu"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "client"},
		Spec: corev1.PodSpec{
			NodeName:      node,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			RestartPolicy: corev1.RestartPolicyOnFailure,
			Containers: []corev1.Container{{
				Name: "curl", Image: "localhost/endpoint:v1",
				Command:      append([]string{libraries + "/ld-linux-x86-64.so.2", "--library-path", libraries, "/node/usr/bin/curl", "--fail", "--silent", "--show-error", "--max-time", "60"}, urls...),
				VolumeMounts: []corev1.VolumeMount{{Name: "node", MountPath: "/node", ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
}
