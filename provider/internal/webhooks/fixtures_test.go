package webhooks

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// machineSpec returns a machine's spec with the defaults of its CRD.
func machineSpec() infrav1.LibvirtMachineSpec {
	return infrav1.LibvirtMachineSpec{
		CPUs:     2,
		Memory:   resource.MustParse("4Gi"),
		CPU:      infrav1.CPUSpec{Mode: infrav1.CPUModeHostModel, Architecture: infrav1.ArchitectureAmd64},
		Firmware: infrav1.FirmwareSpec{Type: infrav1.FirmwareUEFI, SecureBoot: ptr.To(false)},
		Image:    infrav1.ImageSpec{Volume: "ubuntu-2404", Format: infrav1.ImageFormatQCOW2},
		RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("20Gi"), Clone: infrav1.CloneOverlay},
		ExtraDisks: []infrav1.ExtraDiskSpec{
			{Name: "etcd", Size: resource.MustParse("10Gi")},
		},
		Interfaces:      []infrav1.InterfaceSpec{{Network: "default"}},
		Autostart:       ptr.To(true),
		GuestAgent:      ptr.To(true),
		BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
	}
}

func templateResource() infrav1.LibvirtMachineTemplateResource {
	return infrav1.LibvirtMachineTemplateResource{Spec: machineSpec()}
}

// change is a test case of an update.
type change[T client.Object] struct {
	name   string
	change func(T)
	// refused is a part of the expected error. If it is empty, the change must be allowed.
	refused string
}

// testChanges tests updates of an object, one change at a time.
func testChanges[T client.Object](t *testing.T, v validator[T], object T, changes []change[T]) {
	t.Helper()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			before := object.DeepCopyObject().(T)
			after := object.DeepCopyObject().(T)
			c.change(after)
			_, err := v.ValidateUpdate(requestContext(false), before, after)
			expectRefusal(g, err, c.refused)
		})
	}
}

// testCreations tests the creation of an object, with one change at a time.
func testCreations[T client.Object](t *testing.T, v validator[T], object T, changes []change[T]) {
	t.Helper()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			created := object.DeepCopyObject().(T)
			c.change(created)
			_, err := v.ValidateCreate(requestContext(false), created)
			expectRefusal(g, err, c.refused)
		})
	}
}

func expectRefusal(g *WithT, err error, message string) {
	if message == "" {
		g.Expect(err).ToNot(HaveOccurred())
		return
	}
	g.Expect(err).To(MatchError(ContainSubstring(message)))
	g.Expect(apierrors.IsInvalid(err)).To(BeTrue(), "not an Invalid error: %v", err)
}

func requestContext(dryRun bool) context.Context {
	return admission.NewContextWithRequest(context.Background(), admission.Request{
		AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(dryRun)},
	})
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "default"}
}
