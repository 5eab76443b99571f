package updateextension

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	text, err := json.Marshal(object)
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	return runtime.RawExtension{Raw: text}
}

func newMachine(change ...func(*infrav1.LibvirtMachineSpec)) *infrav1.LibvirtMachine {
	machine := &infrav1.LibvirtMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue-1", Generation: 3},
		Spec: infrav1.LibvirtMachineSpec{CPUs: 2, Memory: resource.MustParse("4Gi"),
			Image: infrav1.ImageSpec{Volume: "image"}, RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("20Gi")},
			ExtraDisks: []infrav1.ExtraDiskSpec{{Name: "etcd", Size: resource.MustParse("5Gi")}, {Name: "data", Size: resource.MustParse("9Gi")}}},
	}
	for _, f := range change {
		f(&machine.Spec)
	}
	return machine
}

func newTemplate(change ...func(*infrav1.LibvirtMachineSpec)) *infrav1.LibvirtMachineTemplate {
	template := &infrav1.LibvirtMachineTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtMachineTemplate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue"},
	}
	template.Spec.Template.Spec = newMachine(change...).Spec
	return template
}

// TestCanUpdate checks that the patch has exactly the changes that are made in place. Cluster API applies the patch to
// the current object and rolls out the remaining differences to the desired one.
func TestCanUpdate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*infrav1.LibvirtMachineSpec)
		patch  string
	}{
		"nothing": {change: func(*infrav1.LibvirtMachineSpec) {}},
		"all changes in place": {
			change: func(s *infrav1.LibvirtMachineSpec) {
				s.CPUs, s.Memory, s.RootDisk.Size = 4, resource.MustParse("8Gi"), resource.MustParse("30Gi")
				s.ExtraDisks[1].Size, s.RunPolicy = resource.MustParse("10Gi"), infrav1.RunManual
			},
			patch: `[{"op":"add","path":"AT/cpus","value":4},{"op":"add","path":"AT/memory","value":"8Gi"},{"op":"add","path":"AT/runPolicy","value":"Manual"},
				{"op":"add","path":"AT/rootDisk/size","value":"30Gi"},{"op":"add","path":"AT/extraDisks/1/size","value":"10Gi"}]`,
		},
		"less": {
			change: func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Memory = 1, resource.MustParse("1Gi") },
			patch:  `[{"op":"add","path":"AT/cpus","value":1},{"op":"add","path":"AT/memory","value":"1Gi"}]`,
		},
		"disks that shrink": {change: func(s *infrav1.LibvirtMachineSpec) {
			s.RootDisk.Size, s.ExtraDisks[0].Size = resource.MustParse("10Gi"), resource.MustParse("1Gi")
		}},
		"another disk": {change: func(s *infrav1.LibvirtMachineSpec) {
			s.ExtraDisks[0].Name, s.ExtraDisks[0].Size = "logs", resource.MustParse("50Gi")
		}},
		"disks in another order": {change: func(s *infrav1.LibvirtMachineSpec) {
			s.ExtraDisks[0], s.ExtraDisks[1] = s.ExtraDisks[1], s.ExtraDisks[0]
		}},
		"another image": {change: func(s *infrav1.LibvirtMachineSpec) { s.Image.Volume = "other" }},
		"more CPUs and dedicated": {
			change: func(s *infrav1.LibvirtMachineSpec) {
				s.CPUs, s.CPU.Dedicated, s.Memory = 4, ptr.To(true), resource.MustParse("8Gi")
			},
			patch: `[{"op":"add","path":"AT/memory","value":"8Gi"}]`,
		},
		"more CPUs and another image": {
			change: func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Image.Volume = 4, "other" },
			patch:  `[{"op":"add","path":"AT/cpus","value":4}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "x"}}
			ofMachine := &runtimehooksv1.CanUpdateMachineRequest{}
			ofMachine.Current.InfrastructureMachine, ofMachine.Desired.InfrastructureMachine = raw(t, newMachine()), raw(t, newMachine(tc.change))
			ofMachine.Desired.Machine.Spec.Bootstrap = config
			machine := &runtimehooksv1.CanUpdateMachineResponse{}
			canUpdateMachine(t.Context(), ofMachine, machine)
			check(t, machine, machine.InfrastructureMachinePatch, "/spec", tc.patch)

			ofSet := &runtimehooksv1.CanUpdateMachineSetRequest{}
			ofSet.Current.InfrastructureMachineTemplate, ofSet.Desired.InfrastructureMachineTemplate = raw(t, newTemplate()), raw(t, newTemplate(tc.change))
			ofSet.Desired.MachineSet.Spec.Template.Spec.Bootstrap = config
			set := &runtimehooksv1.CanUpdateMachineSetResponse{}
			canUpdateMachineSet(t.Context(), ofSet, set)
			check(t, set, set.InfrastructureMachineTemplatePatch, "/spec/template/spec", tc.patch)

			// User-provided bootstrap data.
			ofMachine.Desired.Machine.Spec.Bootstrap, ofSet.Desired.MachineSet.Spec.Template.Spec.Bootstrap = clusterv1.Bootstrap{}, clusterv1.Bootstrap{}
			machine, set = &runtimehooksv1.CanUpdateMachineResponse{}, &runtimehooksv1.CanUpdateMachineSetResponse{}
			canUpdateMachine(t.Context(), ofMachine, machine)
			check(t, machine, machine.InfrastructureMachinePatch, "/spec", "")
			canUpdateMachineSet(t.Context(), ofSet, set)
			check(t, set, set.InfrastructureMachineTemplatePatch, "/spec/template/spec", "")
		})
	}
}

// TestDedicatedCPUsAreReplaced checks that dedicated CPUs aren't changed in place, unlike memory.
func TestDedicatedCPUsAreReplaced(t *testing.T) {
	dedicated := func(s *infrav1.LibvirtMachineSpec) { s.CPU.Dedicated = ptr.To(true) }
	request, response := &runtimehooksv1.CanUpdateMachineRequest{}, &runtimehooksv1.CanUpdateMachineResponse{}
	request.Current.InfrastructureMachine = raw(t, newMachine(dedicated))
	request.Desired.InfrastructureMachine = raw(t, newMachine(dedicated, func(s *infrav1.LibvirtMachineSpec) { s.CPUs, s.Memory = 4, resource.MustParse("8Gi") }))
	request.Desired.Machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "x"}
	canUpdateMachine(t.Context(), request, response)
	check(t, response, response.InfrastructureMachinePatch, "/spec", `[{"op":"add","path":"AT/memory","value":"8Gi"}]`)
}

func check(t *testing.T, response runtimehooksv1.ResponseObject, patch runtimehooksv1.Patch, at, want string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(response.GetStatus()).To(Equal(runtimehooksv1.ResponseStatusSuccess), response.GetMessage())
	if want == "" {
		g.Expect(patch.IsDefined()).To(BeFalse(), string(patch.Patch))
		return
	}
	g.Expect(patch.PatchType).To(Equal(runtimehooksv1.JSONPatchType))
	var wanted []map[string]any
	g.Expect(json.Unmarshal([]byte(want), &wanted)).To(Succeed())
	for _, operation := range wanted {
		operation["path"] = at + operation["path"].(string)[len("AT"):]
	}
	text, err := json.Marshal(wanted)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(patch.Patch).To(MatchJSON(text))
}

// TestObjectsOfOthers checks that objects of other providers get no patch, and that unreadable objects are errors.
func TestObjectsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		object  string
		failure string
	}{
		"of another provider": {object: `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachine","spec":{"cpus":4}}`},
		"of another group":    {object: `{"apiVersion":"example.org/v1alpha1","kind":"LibvirtMachine","spec":{"cpus":4}}`},
		"another version": {object: `{"apiVersion":"infrastructure.cluster.x-k8s.io/v9","kind":"LibvirtMachine","metadata":{"namespace":"n","name":"m"},"spec":{"cpus":4}}`,
			failure: "reading LibvirtMachine n/m: it has version v9, and this manager knows v1alpha1"},
		"no spec": {object: `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1alpha1","kind":"LibvirtMachine","metadata":{"namespace":"n","name":"m"}}`,
			failure: "reading LibvirtMachine n/m: it has no [spec]"},
		"not JSON": {object: `{`, failure: "reading the object of the infrastructure provider in the request"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			patch, err := changes(runtime.RawExtension{Raw: []byte(tc.object)}, raw(t, newMachine()), "LibvirtMachine", "spec")
			if tc.failure != "" {
				g.Expect(err).To(MatchError(ContainSubstring(tc.failure)))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(patch.IsDefined()).To(BeFalse())
			request := &runtimehooksv1.UpdateMachineRequest{}
			request.Desired.InfrastructureMachine = runtime.RawExtension{Raw: []byte(tc.object)}
			response := &runtimehooksv1.UpdateMachineResponse{}
			updateMachine(t.Context(), nil, request, response)
			g.Expect(response.GetStatus()).To(Equal(runtimehooksv1.ResponseStatusFailure))
			g.Expect(response.GetMessage()).To(ContainSubstring("namespaceSelector"))
		})
	}
}

// TestProgress checks the reported progress of an update for each condition, and that only a condition about the
// requested change counts.
func TestProgress(t *testing.T) {
	condition := func(status metav1.ConditionStatus, message string) func(*infrav1.LibvirtMachine) {
		return func(m *infrav1.LibvirtMachine) {
			conditions.Set(m, metav1.Condition{Type: infrav1.UpdatedInPlaceCondition, Status: status, Reason: "Any", Message: message})
		}
	}
	for name, tc := range map[string]struct {
		prepare       []func(*infrav1.LibvirtMachine)
		gone, broken  bool
		waits, failed string
	}{
		"done":         {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionTrue, "")}},
		"under way":    {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionUnknown, "The guest was asked")}, waits: "The guest was asked"},
		"impossible":   {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionFalse, "no room")}, failed: "no room"},
		"not observed": {waits: "hasn't seen the change"},
		"an earlier change was done": {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionTrue, ""),
			func(m *infrav1.LibvirtMachine) { m.Generation++ }}, waits: "hasn't seen the change"},
		"an earlier change failed": {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionFalse, "no room"),
			func(m *infrav1.LibvirtMachine) { m.Generation++ }}, waits: "hasn't seen the change"},
		"another spec": {prepare: []func(*infrav1.LibvirtMachine){func(m *infrav1.LibvirtMachine) { m.Spec.CPUs = 3 },
			condition(metav1.ConditionTrue, "")}, waits: "differs from the one in the request"},
		"paused": {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionFalse, "no room"), func(m *infrav1.LibvirtMachine) {
			conditions.Set(m, metav1.Condition{Type: infrav1.PausedCondition, Status: metav1.ConditionTrue, Reason: infrav1.PausedReason})
		}}, waits: "paused"},
		"being deleted": {prepare: []func(*infrav1.LibvirtMachine){condition(metav1.ConditionTrue, ""), func(m *infrav1.LibvirtMachine) {
			m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{infrav1.MachineFinalizer}
		}}, failed: "being deleted"},
		"deleted": {gone: true, failed: "LibvirtMachine team/blue-1 doesn't exist"},
		"broken":  {broken: true, failed: "reading LibvirtMachine team/blue-1: the API server is away"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
			machine := newMachine()
			for _, f := range tc.prepare {
				f(machine)
			}
			builder := clientfake.NewClientBuilder().WithScheme(scheme)
			if !tc.gone {
				builder = builder.WithObjects(machine)
			}
			if tc.broken {
				builder = builder.WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						return errors.New("the API server is away")
					}})
			}
			request, response := &runtimehooksv1.UpdateMachineRequest{}, &runtimehooksv1.UpdateMachineResponse{}
			request.Desired.InfrastructureMachine = raw(t, newMachine())
			updateMachine(t.Context(), builder.Build(), request, response)
			if tc.failed != "" {
				g.Expect(response.GetStatus()).To(Equal(runtimehooksv1.ResponseStatusFailure))
				g.Expect(response.GetMessage()).To(ContainSubstring(tc.failed))
				return
			}
			g.Expect(response.GetStatus()).To(Equal(runtimehooksv1.ResponseStatusSuccess), response.GetMessage())
			g.Expect(response.GetRetryAfterSeconds() > 0).To(Equal(tc.waits != ""))
			g.Expect(response.GetMessage()).To(ContainSubstring(tc.waits))
		})
	}
}

func TestNew(t *testing.T) {
	extension, err := New(nil, server.Options{})
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	NewWithT(t).Expect(extension.NeedLeaderElection()).To(BeFalse(), "each replica answers")
}
