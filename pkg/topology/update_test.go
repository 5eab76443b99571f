package topology_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

// TestAdmitUpdate checks which changes the webhook always refuses, and which it refuses while Clusters use a
// removed part.
func TestAdmitUpdate(t *testing.T) {
	templateOf := func(kind string) clusterv1.ClusterClassTemplateReference {
		return clusterv1.ClusterClassTemplateReference{APIVersion: "a.cluster.x-k8s.io/v1", Kind: kind, Name: "t"}
	}
	workers := func(name string) clusterv1.MachineDeploymentClass {
		c := clusterv1.MachineDeploymentClass{Class: name}
		c.Bootstrap.TemplateRef, c.Infrastructure.TemplateRef = templateOf("AConfigTemplate"), templateOf("AMachineTemplate")
		return c
	}
	base := &clusterv1.ClusterClass{}
	base.Name = "c"
	base.Spec.Infrastructure.TemplateRef, base.Spec.ControlPlane.TemplateRef = templateOf("AClusterTemplate"), templateOf("AControlPlaneTemplate")
	base.Spec.Workers.MachineDeployments = []clusterv1.MachineDeploymentClass{workers("one"), workers("two")}
	base.Spec.KubernetesVersions = []string{"v1.35.0", "v1.36.0"}
	base.Spec.ControlPlane.MachineInfrastructure.TemplateRef = templateOf("AMachineTemplate")
	base.Spec.ControlPlane.HealthCheck.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](60)
	for _, tc := range []struct {
		name          string
		edit          func(c *clusterv1.ClusterClass)
		always, inUse string
	}{
		{"nothing", func(*clusterv1.ClusterClass) {}, "", ""},
		{"another name of a template", func(c *clusterv1.ClusterClass) { c.Spec.ControlPlane.TemplateRef.Name = "u" }, "", ""},
		{"another kind", func(c *clusterv1.ClusterClass) { c.Spec.ControlPlane.TemplateRef.Kind = "BControlPlaneTemplate" }, "spec.controlPlane.templateRef.kind", ""},
		{"another kind of workers", func(c *clusterv1.ClusterClass) {
			c.Spec.Workers.MachineDeployments[1].Infrastructure.TemplateRef.Kind = "BMachineTemplate"
		}, "spec.workers.machineDeployments[1].infrastructure.templateRef.kind", ""},
		{"fewer workers", func(c *clusterv1.ClusterClass) {
			c.Spec.Workers.MachineDeployments = c.Spec.Workers.MachineDeployments[:1]
		}, "", "spec.workers.machineDeployments"},
		{"fewer versions", func(c *clusterv1.ClusterClass) { c.Spec.KubernetesVersions = []string{"v1.36.0"} }, "", "spec.kubernetesVersions"},
		{"no health check", func(c *clusterv1.ClusterClass) {
			c.Spec.ControlPlane.HealthCheck = clusterv1.ControlPlaneClassHealthCheck{}
		}, "", "spec.controlPlane.healthCheck"},
		{"an invalid new class", func(c *clusterv1.ClusterClass) { c.Spec.KubernetesVersions = []string{"v1.35.0", "v1.36.0", "x"} }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := base.DeepCopy()
			tc.edit(next)
			always, inUse, err := topology.AdmitUpdate(t.Context(), base, next)
			if err != nil {
				t.Fatal(err)
			}
			for _, half := range []struct {
				got  []metav1.StatusCause
				want string
			}{{always, tc.always}, {inUse, tc.inUse}} {
				var paths []string
				for _, p := range half.got {
					paths = append(paths, p.Field)
				}
				if got := strings.Join(slices.Compact(paths), " "); got != half.want {
					t.Errorf("got %q, want %q: %v", got, half.want, half.got)
				}
			}
		})
	}
}
