package libvirtmachine

import (
	"context"
	"path"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
)

// keepConsoleLogs sets the folder for console logs on host a.
func (w *world) keepConsoleLogs(folder string) {
	w.t.Helper()
	host := &infrav1.LibvirtHost{}
	w.Expect(w.api.Get(w.t.Context(), client.ObjectKey{Name: "a"}, host)).To(Succeed())
	host.Spec.ConsoleLogFolder = folder
	w.Expect(w.api.Update(w.t.Context(), host)).To(Succeed())
}

// TestConsoleLog: the console output of a guest is kept if its host has a folder for it that isn't the folder of a
// storage pool. Conditions that wait for an action of the guest say where to read the output.
func TestConsoleLog(t *testing.T) {
	for name, tc := range map[string]struct {
		folder string
		kept   bool
	}{
		"a folder":              {folder: "/var/log/libvirt/console", kept: true},
		"none":                  {},
		"a pool's folder":       {folder: "/fake/default"},
		"below a pool's folder": {folder: "/fake/default/console", kept: true},
		"above a pool's folder": {folder: "/fake", kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, "a")
			w.silent = true
			w.keepConsoleLogs(tc.folder)
			m := w.newManager(0)
			w.withNodes(m)
			w.until(m, w.hasCondition(infrav1.AddressesReadyCondition, infrav1.WaitingForAddressesReason))

			domain := hypervisor.DomainName(w.uuid(), key.Namespace, key.Name)
			file := path.Join(tc.folder, domain+"-console.log")
			see := "See the console of the guest, on host a: virsh console " + domain
			xml, _ := w.hosts["a"].DomainXML(w.uuid())
			if tc.kept {
				see = "See what the guest has written to its console, on host a: tail -n 100 " + file
				w.Expect(xml).To(ContainSubstring(`<log file="` + file + `" append="on"></log>`))
			} else {
				w.Expect(xml).ToNot(ContainSubstring("<log "))
			}
			says := func(condition string) string { return conditions.GetMessage(w.infra(), condition) }
			w.Expect(says(infrav1.AddressesReadyCondition)).To(HaveSuffix(". " + see))

			// The existing log doesn't depend on the host's spec any more.
			w.keepConsoleLogs("/var/log/other")
			w.silent = false
			w.until(m, w.isProvisioned)
			w.Expect(says(infrav1.SeedRemovedCondition)).To(Equal("Waiting for status.nodeRef of the Machine. " + see))
			w.Expect(says(infrav1.NodeProviderIDSetCondition)).To(HaveSuffix(" so far. " + see))
			w.hosts["a"].SetState(w.uuid(), hypervisor.StateCrashed)
			w.until(m, func() bool { return w.hosts["a"].State(w.uuid()) == hypervisor.StateRunning })
			w.Expect(says(infrav1.SeedRemovedCondition)).To(HaveSuffix(see))
			w.hosts["a"].SetState(w.uuid(), hypervisor.StateCrashed)
			w.until(m, w.hasCondition(infrav1.InstanceReadyCondition, infrav1.CrashLoopBackOffReason))
			w.Expect(says(infrav1.InstanceReadyCondition)).To(HaveSuffix(". " + see))
		})
	}
}

// TestConsoleLogStays: a host that refuses to delete the console log delays the deletion of a machine by some minutes
// only, and an event has the path of the file. A host that doesn't support the deletion causes no delay.
func TestConsoleLogStays(t *testing.T) {
	for reason, waits := range map[error]bool{hypervisor.ErrOther: true, hypervisor.ErrUnsupported: false} {
		t.Run(reason.Error(), func(t *testing.T) {
			w := newWorld(t, nil, "a")
			var long atomic.Bool
			w.functions = interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, object, options...)
				if _, is := object.(*infrav1.LibvirtMachine); is && object.GetDeletionTimestamp() != nil && long.Load() {
					object.SetDeletionTimestamp(ptr.To(metav1.NewTime(time.Now().Add(-consoleLogPatience))))
				}
				return err
			}}
			m := w.until(w.newManager(0), w.isProvisioned)
			w.hosts["a"].Inject(fake.Fault{Operation: fake.RemoveConsoleLog, Effect: fake.Fail, Reason: reason, Times: -1})
			w.output()
			w.delete()
			file := w.hosts["a"].ConsoleLogs()[0]
			if waits {
				for range 10 {
					_, err := m.reconcile()
					w.Expect(err).To(MatchError(reason))
				}
				w.Expect(conditions.GetMessage(w.infra(), infrav1.ReadyCondition)).To(ContainSubstring("deleting the console log of the domain"))
				long.Store(true)
			}
			w.until(m, w.isDeleted)
			w.Expect(w.inventory()).To(BeEmpty())
			w.Expect(w.output()).To(ContainSubstring("Warning ConsoleLogStays The file " + file + " stays on host a: "))
		})
	}
}
