package imagecollection

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

const sum = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// seenHosts are hosts in their current state.
type seenHosts struct{ connection hypervisor.Hypervisor }

func (h seenHosts) Snapshot(string) (fleet.Snapshot, bool) {
	pool, _ := h.connection.Pool(context.Background(), "default")
	volumes, err := h.connection.PoolVolumes(context.Background(), "default")
	byName := map[string]hypervisor.Volume{}
	for _, volume := range volumes {
		byName[volume.Name] = volume
	}
	return fleet.Snapshot{Reachable: err == nil, Pools: map[string]fleet.Pool{"default": {Pool: pool, Volumes: byName}}}, true
}

// TestReconcile: unused images are deleted after some time, with an event. Images for which a machine waits stay, and
// so do all images of a host that is paused, isn't selected or can't be reached.
func TestReconcile(t *testing.T) {
	waiting := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "m"},
		Spec: infrav1.LibvirtMachineSpec{HostName: "one", Image: infrav1.ImageSpec{URL: "http://nowhere", Checksum: sum, Format: infrav1.ImageFormatQCOW2}}}
	made := waiting.DeepCopy()
	made.Status.Initialization.Provisioned = ptr.To(true)
	elsewhere := waiting.DeepCopy()
	elsewhere.Spec.HostName = "two"
	private := waiting.DeepCopy()
	private.Spec.Image.SecretRef.Name = "server"
	for _, tc := range []struct {
		name        string
		machine     *infrav1.LibvirtMachine
		host        func(*infrav1.LibvirtHost)
		filter      string
		unreachable bool
		stays       bool
		// never is true if no further reconcile is requested.
		never bool
	}{
		{name: "unused"},
		{name: "a machine has a full copy", machine: made},
		{name: "a machine of another host waits", machine: elsewhere},
		{name: "a machine waits", machine: waiting, stays: true},
		{name: "a machine waits for a private image of its namespace", machine: private},
		{name: "paused", host: func(h *infrav1.LibvirtHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, stays: true, never: true},
		{name: "of another manager", filter: "mine", stays: true, never: true},
		{name: "unreachable", unreachable: true, stays: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(errors.Join(infrav1.AddToScheme(scheme), corev1.AddToScheme(scheme))).To(Succeed())
			host := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: infrav1.LibvirtHostSpec{
				StoragePools: infrav1.HostStoragePools{Images: "default", Disks: []string{"default"}}}}
			if tc.host != nil {
				tc.host(host)
			}
			objects := []client.Object{host, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: waiting.Namespace}}}
			if tc.machine != nil {
				objects = append(objects, tc.machine.DeepCopy())
			}
			api := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithIndex(&infrav1.LibvirtMachine{}, index.MachineHost, index.HostOf).Build()
			pretended := fake.NewHost()
			connection, err := pretended.Connect(t.Context())
			g.Expect(err).ToNot(HaveOccurred())
			name := "caplv-image-" + sum[:6] + "-" + sum[7:] + ".qcow2"
			content, err := connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: name + ".0123456789ab"},
				Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20})
			g.Expect(err).ToNot(HaveOccurred())
			_, err = connection.CreateVolume(t.Context(), hypervisor.VolumeSpec{VolumeRef: hypervisor.VolumeRef{Pool: "default", Name: name},
				Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 20, Backing: &hypervisor.Backing{Path: content.Path, Format: content.Format}})
			g.Expect(err).ToNot(HaveOccurred())
			if tc.unreachable {
				pretended.SetReachable(false)
			}
			recorder := events.NewFakeRecorder(10)
			const retention = time.Nanosecond
			r := &Reconciler{Client: api, Hosts: seenHosts{connection}, WatchFilterValue: tc.filter, recorder: recorder,
				Images: images.New(func(string) (hypervisor.Hypervisor, error) { return connection, nil }, nil, images.Options{Retention: retention})}
			for range 2 { // the first sees it as unused, and the second deletes it
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(result.RequeueAfter == 0).To(Equal(tc.never))
				time.Sleep(2 * retention)
			}
			left, _ := pretended.Left()
			if tc.stays {
				g.Expect(left).To(HaveLen(2))
				g.Expect(recorder.Events).To(BeEmpty())
				return
			}
			g.Expect(left).To(BeEmpty())
			g.Expect(<-recorder.Events).To(And(HavePrefix("Normal ImagesDeleted Deleted images that no machine has used for 1ns, 0 in total: sha256-0123"), HaveSuffix(".qcow2")))
			families, err := metrics.Registry.Gather()
			g.Expect(err).ToNot(HaveOccurred())
			counted := map[string]float64{}
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					counted[family.GetName()] = metric.GetCounter().GetValue()
				}
			}
			g.Expect(counted).To(HaveKeyWithValue("caplv_images_deleted_total", 1.0))
			g.Expect(counted).To(HaveKeyWithValue("caplv_images_deleted_bytes_total", 0.0))

			g.Expect(api.Delete(t.Context(), host)).To(Succeed())
			_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(host)})
			g.Expect(err).ToNot(HaveOccurred())
		})
	}
}
