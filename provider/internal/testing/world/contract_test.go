package world_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// elsewhere has the rules of the contracts that need no running controllers, with the place that checks them.
var elsewhere = map[string]string{
	"All resources: scope":                                               "`clusterctl-release contract`, which reads the CRDs",
	"All resources: `TypeMeta` and `ObjectMeta`field":                    "`clusterctl-release contract`",
	"All resources: `APIVersion` field value":                            "`clusterctl-release contract`",
	"InfraCluster, InfraClusterList resource definition":                 "`clusterctl-release contract`",
	"InfraClusterTemplate, InfraClusterTemplateList resource definition": "`clusterctl-release contract`",
	"InfraMachine, InfraMachineList resource definition":                 "`clusterctl-release contract`",
	"InfraMachineTemplate, InfraMachineTemplateList resource definition": "`clusterctl-release contract`",
	"InfraCluster: terminal failures":                                    "removed from the contract: `clusterctl-release contract` checks that the fields don't exist",
	"InfraMachine: terminal failures":                                    "removed from the contract, likewise",
	"Clusterctl support":                                                 "internal/testbed installs the provider by clusterctl",
	"Multi tenancy":                                                      "TestNamespacesOfAnIdentity and TestNamespaceAndWatchFilter of provider/test/api",
}

// contractScene has the cluster on which all rules are checked, one after the other.
type contractScene struct {
	*world.Scene
	cluster *clusterv1.Cluster
	infra   *infrav1.LibvirtCluster
	// machine is a worker in the required failure domain rack-b.
	machine      *clusterv1.Machine
	infraMachine *infrav1.LibvirtMachine
	template     *infrav1.LibvirtMachineTemplate
	// machinePool has two machines.
	machinePool *clusterv1.MachinePool
	infraPool   *infrav1.LibvirtMachinePool
}

// driven has the rules that need running controllers.
var driven = map[string]func(t *testing.T, s *contractScene){
	"InfraCluster: control plane endpoint": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infra.Spec.ControlPlaneEndpoint.IsValid()).To(BeTrue())
		s.Expect(s.cluster.Spec.ControlPlaneEndpoint).To(Equal(s.infra.Spec.ControlPlaneEndpoint))
	},
	"InfraCluster: failure domains": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infra.Status.FailureDomains).To(HaveExactElements(HaveField("Name", "rack-a"), HaveField("Name", "rack-b")))
		s.Expect(s.cluster.Status.FailureDomains).To(Equal(s.infra.Status.FailureDomains))
	},
	"InfraCluster: initialization completed": func(_ *testing.T, s *contractScene) {
		s.Expect(*s.infra.Status.Initialization.Provisioned).To(BeTrue())
		s.Expect(*s.cluster.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	},
	"InfraCluster: conditions": func(_ *testing.T, s *contractScene) {
		mirrored(s, s.infra, s.cluster, clusterv1.ClusterInfrastructureReadyCondition)
	},
	"InfraCluster: pausing": func(_ *testing.T, s *contractScene) { pausing(s, s.infra) },
	"Externally managed infrastructure": func(t *testing.T, s *contractScene) {
		infra := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "external",
			Annotations: map[string]string{clusterv1.ManagedByAnnotation: "somebody"}},
			Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.11", Port: 6443}}}
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "external"}, Spec: clusterv1.ClusterSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "external"}}}
		s.Create(infra, cluster)
		s.Eventually(func() []metav1.OwnerReference { s.Get(infra); return infra.OwnerReferences }).ShouldNot(BeEmpty())
		s.AwaitManagers()
		s.Get(infra)
		s.Expect(infra.Finalizers).To(BeEmpty())
		s.Expect(infra.Status).To(BeZero(), "the provider has written the status")
		// The external manager reports that the infrastructure is provisioned.
		infra.Status.Initialization.Provisioned = ptr.To(true)
		s.Expect(s.Client.Status().Update(t.Context(), infra)).To(Succeed())
		s.Eventually(func() bool {
			s.Get(cluster)
			return ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false)
		}).Should(BeTrue())
		s.Delete(cluster)
	},
	"InfraMachine: provider ID": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infraMachine.Spec.ProviderID).To(HavePrefix("libvirt:///"))
		s.Expect(s.machine.Spec.ProviderID).To(Equal(s.infraMachine.Spec.ProviderID))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.machine.Status.NodeRef.Name}}
		s.Get(node)
		s.Expect(node.Spec.ProviderID).To(Equal(s.machine.Spec.ProviderID))
	},
	"InfraMachine: failure domain": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infraMachine.Spec.HostName).To(Equal(s.Hosts[2].Name), "the only one in rack-b")
		s.Expect(s.infraMachine.Status.FailureDomain).To(Equal("rack-b"))
		s.Expect(s.machine.Status.FailureDomain).To(Equal("rack-b"))
	},
	"InfraMachine: addresses": func(_ *testing.T, s *contractScene) {
		s.Expect(s.infraMachine.Status.Addresses).To(ContainElement(And(HaveField("Type", clusterv1.MachineInternalIP), HaveField("Address", HavePrefix("10.")))))
		s.Expect(s.machine.Status.Addresses).To(Equal(s.infraMachine.Status.Addresses))
	},
	"InfraMachine: initialization completed": func(_ *testing.T, s *contractScene) {
		s.Expect(*s.infraMachine.Status.Initialization.Provisioned).To(BeTrue())
		s.Expect(*s.machine.Status.Initialization.InfrastructureProvisioned).To(BeTrue())
	},
	"InfraMachine: conditions": func(_ *testing.T, s *contractScene) {
		mirrored(s, s.infraMachine, s.machine, clusterv1.MachineInfrastructureReadyCondition)
	},
	"InfraMachine: support for in-place changes": func(t *testing.T, s *contractScene) {
		uuid := strings.TrimPrefix(s.infraMachine.Spec.ProviderID, infrav1.ProviderIDPrefix)
		before, _ := s.Hosts[2].DomainXML(uuid)
		world.Change(s.Scene, s.infraMachine, func(m *infrav1.LibvirtMachine) { m.Spec.CPUs = 3 })
		s.AwaitManagers()
		after, _ := s.Hosts[2].DomainXML(uuid)
		s.Expect(after).To(Equal(before), "the controller leaves in-place changes to an update extension")

		changed := s.infraMachine.DeepCopy()
		changed.Spec.Image.Volume = "another"
		err := s.Client.Patch(t.Context(), changed, client.MergeFrom(s.infraMachine))
		s.Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring("spec.image"))))
	},
	"InfraMachineTemplate: support for SSA dry run": func(t *testing.T, s *contractScene) {
		apply := func(annotations map[string]string) error {
			changed := s.template.DeepCopy()
			changed.TypeMeta = metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachineTemplate"}
			changed.ObjectMeta = metav1.ObjectMeta{Namespace: changed.Namespace, Name: changed.Name, Annotations: annotations}
			changed.Status = infrav1.LibvirtMachineTemplateStatus{}
			changed.Spec.Template.Spec.CPUs = 7
			return s.Client.Patch(t.Context(), changed, client.Apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("topology")) //nolint:staticcheck // typed objects have no apply configurations here
		}
		s.Expect(apply(map[string]string{clusterv1.TopologyDryRunAnnotation: ""})).To(Succeed())
		s.Expect(apply(nil)).To(Satisfy(apierrors.IsInvalid), "immutable for other writers")
	},
	"InfraMachine: pausing": func(_ *testing.T, s *contractScene) { pausing(s, s.infraMachine) },
	"InfraMachineTemplate: support cluster autoscaling from zero": func(_ *testing.T, s *contractScene) {
		s.Eventually(func(g Gomega) {
			s.Get(s.template)
			g.Expect(s.template.Status.Capacity).To(And(HaveKey(corev1.ResourceCPU), HaveKey(corev1.ResourceMemory)))
			g.Expect(string(s.template.Status.NodeInfo.Architecture)).To(Equal("amd64"))
		}).Should(Succeed())
	},
}

// mirrored compares an object's Ready condition with the one that Cluster API copies from it.
func mirrored(s *contractScene, infra, owner interface {
	client.Object
	conditions.Getter
}, condition string) {
	s.Eventually(func(g Gomega) {
		s.Get(infra)
		s.Get(owner)
		ready, mirror := conditions.Get(infra, infrav1.ReadyCondition), conditions.Get(owner, condition)
		g.Expect(ready).ToNot(BeNil())
		g.Expect(mirror).ToNot(BeNil())
		g.Expect([]any{mirror.Status, mirror.Reason, mirror.Message}).To(Equal([]any{metav1.ConditionTrue, ready.Reason, ready.Message}))
	}).Should(Succeed())
}

// pausing checks that an object is paused by its Cluster and by its annotation.
func pausing(s *contractScene, infra interface {
	client.Object
	conditions.Getter
}) {
	world.Change(s.Scene, s.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionTrue)
	world.Change(s.Scene, s.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionFalse)
	setPaused := func(paused bool) {
		world.Change(s.Scene, client.Object(infra), func(o client.Object) {
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			delete(annotations, clusterv1.PausedAnnotation)
			if paused {
				annotations[clusterv1.PausedAnnotation] = ""
			}
			o.SetAnnotations(annotations)
		})
	}
	setPaused(true)
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionTrue)
	setPaused(false)
	s.Condition(infra, infrav1.PausedCondition, metav1.ConditionFalse)
}

// rules reads the names of a contract's rules from the table of its page in Cluster API's book.
func rules(t *testing.T, page string) []string {
	t.Helper()
	folder, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(folder)), "docs/book/src/developer/providers/contracts", page))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\| \[([^\]]+)\] +\| (Yes|No) `).FindAllStringSubmatch(string(content), -1) {
		names = append(names, match[1])
	}
	if len(names) < 10 {
		t.Fatalf("%s has only %d rules", page, len(names))
	}
	return names
}

// TestRulesOfTheContracts checks every rule of the contracts for InfraCluster, InfraMachine and InfraMachinePool that a
// schema can't show. It fails for new rules that neither table has.
func TestRulesOfTheContracts(t *testing.T) {
	t.Parallel()
	s := &contractScene{Scene: world.NewScene(t, "rack-a", "rack-a", "rack-b")}
	s.cluster = s.Cluster("blue")
	s.ControlPlane(s.cluster)
	s.template = s.Template("workers")
	deployment := s.MachineDeployment(s.cluster, "workers", 1, "workers", func(d *clusterv1.MachineDeployment) {
		d.Spec.Template.Spec.FailureDomain = "rack-b"
	})
	s.machine = &running(s.Scene, deployment, 1, "workers")[0]
	s.infra = &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "blue"}}
	s.infraMachine = &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.machine.Spec.InfrastructureRef.Name}}

	s.machinePool, s.infraPool = s.MachinePool(s.cluster, "pool", 2)
	s.PoolSettled(s.machinePool, s.infraPool, 2)

	for _, page := range []string{"infra-cluster.md", "infra-machine.md", "infra-machinepool.md"} {
		for _, rule := range rules(t, page) {
			t.Run(strings.TrimSuffix(page, ".md")+"/"+rule, func(t *testing.T) {
				drive, drivenHere := driven[rule]
				if _, known := elsewhere[rule]; known == drivenHere {
					t.Fatalf("checked here: %v, checked elsewhere: %v; exactly one of the two is required", drivenHere, known)
				}
				if !drivenHere {
					return
				}
				in := *s
				in.Scene = s.In(t)
				for _, object := range []client.Object{in.cluster, in.infra, in.machine, in.infraMachine, in.machinePool, in.infraPool} {
					in.Get(object)
				}
				drive(t, &in)
			})
		}
	}
	s.Delete(s.cluster)
	s.NothingLeft()
}
