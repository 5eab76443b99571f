package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

const namespace = "caplv-system"

// clusterScoped are the kinds without a namespace.
var clusterScoped = []string{
	"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

func build(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "default")
	g.Expect(err).ToNot(HaveOccurred())
	var objects []*unstructured.Unstructured
	for _, resource := range resources.Resources() {
		content, err := resource.Map()
		g.Expect(err).ToNot(HaveOccurred())
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

// one returns the only object of a kind, as its Go type.
func one[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) T {
	t.Helper()
	g := NewWithT(t)
	var found T
	count := 0
	for _, object := range objects {
		if object.GetKind() == kind {
			count++
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &found)).To(Succeed())
		}
	}
	g.Expect(count).To(Equal(1), kind)
	return found
}

func TestObjects(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	g.Expect(one[corev1.Namespace](t, objects, "Namespace").Name).To(Equal(namespace))

	names := map[string]bool{}
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetName()
		g.Expect(names).ToNot(HaveKey(name))
		names[name] = true
		g.Expect(object.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "infrastructure-libvirt"), name)
		if slices.Contains(clusterScoped, object.GetKind()) {
			g.Expect(object.GetNamespace()).To(BeEmpty(), name)
		} else {
			g.Expect(object.GetNamespace()).To(Equal(namespace), name)
		}
		if object.GetKind() != "CustomResourceDefinition" {
			g.Expect(object.GetName()).To(HavePrefix("caplv-"))
		}
	}
}

func TestEveryCRDIsInTheTree(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("crd/bases/*.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	count := 0
	for _, object := range build(t) {
		if object.GetKind() == "CustomResourceDefinition" {
			count++
		}
	}
	g.Expect(count).To(Equal(len(files)))
}

func TestDeployment(t *testing.T) {
	g := NewWithT(t)
	deployment := one[appsv1.Deployment](t, build(t), "Deployment")
	pod := deployment.Spec.Template
	g.Expect(deployment.Name).To(Equal("caplv-controller-manager"))
	g.Expect(deployment.Spec.Selector.MatchLabels).To(Equal(pod.Labels))
	g.Expect(pod.Labels).ToNot(HaveKey(clusterv1.ProviderNameLabel))

	g.Expect(pod.Spec.Containers).To(HaveLen(1))
	manager := pod.Spec.Containers[0]
	g.Expect(manager.Name).To(Equal("manager"))
	g.Expect(manager.Image).To(HavePrefix("ghcr.io/clusterctl-release/cluster-api-provider-libvirt:"))
	g.Expect(manager.LivenessProbe).ToNot(BeNil())
	g.Expect(manager.ReadinessProbe).ToNot(BeNil())
	g.Expect(manager.Resources.Requests).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory)))
	g.Expect(*pod.Spec.SecurityContext.RunAsNonRoot).To(BeTrue())
	g.Expect(pod.Spec.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
	g.Expect(*manager.SecurityContext.ReadOnlyRootFilesystem).To(BeTrue())
	g.Expect(*manager.SecurityContext.AllowPrivilegeEscalation).To(BeFalse())
	g.Expect(manager.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
	g.Expect(pod.Spec.ServiceAccountName).To(Equal("caplv-manager"))
}

// TestVariablesHaveDefaults checks that the provider can be installed without setting variables.
func TestVariablesHaveDefaults(t *testing.T) {
	g := NewWithT(t)
	args := strings.Join(one[appsv1.Deployment](t, build(t), "Deployment").Spec.Template.Spec.Containers[0].Args, "\n")
	variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap([]byte(args))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(variables).To(HaveLen(10))
	for name, value := range variables {
		g.Expect(value).ToNot(BeNil(), name)
		g.Expect(name).To(Or(HavePrefix("CAPLV_"), HavePrefix("EXP_")))
	}
}

func TestRolesAreBound(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	account := one[corev1.ServiceAccount](t, objects, "ServiceAccount")
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}}

	var roles, bound []string
	for _, object := range objects {
		switch object.GetKind() {
		case "Role":
			roles = append(roles, object.GetName())
		case "RoleBinding":
			binding := &rbacv1.RoleBinding{}
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding)).To(Succeed())
			g.Expect(binding.Subjects).To(Equal(subject))
			bound = append(bound, binding.RoleRef.Name)
		}
	}
	g.Expect(bound).To(ConsistOf(roles))
	clusterBinding := one[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding")
	g.Expect(clusterBinding.Subjects).To(Equal(subject))
	g.Expect(clusterBinding.RoleRef.Name).To(Equal("caplv-manager-role"))

	for _, object := range objects {
		if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
			continue
		}
		role := &rbacv1.ClusterRole{}
		g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role)).To(Succeed())
		for _, rule := range role.Rules {
			all := append(append(append([]string{}, rule.APIGroups...), rule.Resources...), rule.Verbs...)
			g.Expect(all).ToNot(ContainElement("*"), role.Name)
			if object.GetKind() == "ClusterRole" && slices.Contains(rule.Resources, "secrets") {
				g.Expect(rule.Verbs).To(HaveExactElements("get"), "for all namespaces")
			}
		}
	}
}

func TestWebhooksAreServed(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	service := one[corev1.Service](t, objects, "Service")
	deployment := one[appsv1.Deployment](t, objects, "Deployment")
	g.Expect(service.Spec.Selector).To(Equal(deployment.Spec.Selector.MatchLabels))

	var references []*admissionregistrationv1.ServiceReference
	for _, webhook := range one[admissionregistrationv1.ValidatingWebhookConfiguration](t, objects, "ValidatingWebhookConfiguration").Webhooks {
		references = append(references, webhook.ClientConfig.Service)
	}
	for _, webhook := range one[admissionregistrationv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration").Webhooks {
		references = append(references, webhook.ClientConfig.Service)
	}
	g.Expect(references).To(HaveLen(11))
	for _, reference := range references {
		g.Expect(reference.Name).To(Equal(service.Name))
		g.Expect(reference.Namespace).To(Equal(namespace))
	}
}

func TestCertificate(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	certificate := one[map[string]any](t, objects, "Certificate")
	metadata, spec := certificate["metadata"].(map[string]any), certificate["spec"].(map[string]any)
	issuer := one[map[string]any](t, objects, "Issuer")["metadata"].(map[string]any)
	service := one[corev1.Service](t, objects, "Service")

	g.Expect(spec["dnsNames"]).To(ConsistOf(service.Name+"."+namespace+".svc", service.Name+"."+namespace+".svc.cluster.local"))
	g.Expect(spec["issuerRef"]).To(HaveKeyWithValue("name", issuer["name"]))
	volumes := one[appsv1.Deployment](t, objects, "Deployment").Spec.Template.Spec.Volumes
	g.Expect(volumes[0].Secret.SecretName).To(Equal(spec["secretName"]))

	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			g.Expect(object.GetAnnotations()).To(HaveKeyWithValue("cert-manager.io/inject-ca-from",
				namespace+"/"+metadata["name"].(string)))
		}
	}
}

// TestExtensionConfig checks that the manifest, which isn't part of the release, refers to released objects.
func TestExtensionConfig(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	content, err := os.ReadFile("inplaceupdates/extensionconfig.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	config := &runtimev1.ExtensionConfig{}
	g.Expect(yaml.UnmarshalStrict(content, config)).To(Succeed())

	service, pod := one[corev1.Service](t, objects, "Service"), one[appsv1.Deployment](t, objects, "Deployment").Spec.Template.Spec
	reference := config.Spec.ClientConfig.Service
	g.Expect(reference.Name).To(Equal(service.Name))
	g.Expect(reference.Namespace).To(Equal(namespace))
	g.Expect(service.Spec.Ports).To(ContainElement(And(HaveField("Port", *reference.Port), HaveField("TargetPort.StrVal", "extension"))))
	g.Expect(pod.Containers[0].Ports).To(ContainElement(HaveField("Name", "extension")))
	g.Expect(config.Annotations).To(HaveKeyWithValue(runtimev1.InjectCAFromSecretAnnotation, namespace+"/"+pod.Volumes[0].Secret.SecretName))
	for _, object := range objects {
		g.Expect(object.GetKind()).ToNot(Equal("ExtensionConfig"), "Cluster API refuses it unless its feature gate RuntimeSDK is on")
	}
}

// TestNetworkPolicy checks that the policy selects the manager's pod, allows its served ports, and blocks metadata
// services of clouds.
func TestNetworkPolicy(t *testing.T) {
	g := NewWithT(t)
	objects := build(t)
	policy := one[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")
	pod := one[appsv1.Deployment](t, objects, "Deployment").Spec.Template
	g.Expect(policy.Spec.PodSelector.MatchLabels).To(Equal(pod.Labels))
	g.Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress))
	var served, let []string
	for _, port := range pod.Spec.Containers[0].Ports {
		served = append(served, port.Name)
	}
	for _, port := range policy.Spec.Ingress[0].Ports {
		let = append(let, port.Port.String())
	}
	g.Expect(let).To(ConsistOf(served))
	var except []string
	for _, rule := range policy.Spec.Egress {
		for _, peer := range rule.To {
			if peer.IPBlock != nil {
				except = append(except, peer.IPBlock.Except...)
			}
		}
		for _, port := range rule.Ports {
			g.Expect(port.Port.IntValue()).ToNot(Equal(80), "the port of metadata services")
		}
		g.Expect(len(rule.To)+len(rule.Ports)).ToNot(BeZero(), "the rule allows all egress")
	}
	g.Expect(except).To(ConsistOf("169.254.169.254/32", "fd00:ec2::254/128"))
}
