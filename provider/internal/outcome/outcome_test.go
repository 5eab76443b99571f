package outcome_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

const doing = "writing the change"

func change(host *infrav1.LibvirtHost) {
	host.Status.Machines = ptr.To[int32](3)
	conditions.Set(host, metav1.Condition{Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ReadyReason})
}

// TestEnd checks the result of a reconcile for each result of the write.
func TestEnd(t *testing.T) {
	usual, broken, refused := ctrl.Result{RequeueAfter: time.Minute}, errors.New("broken"), apierrors.NewBadRequest("no")
	for name, test := range map[string]struct {
		change func(*infrav1.LibvirtHost)
		// meanwhile runs between reading and writing.
		meanwhile func(g *WithT, c client.Client, host *infrav1.LibvirtHost)
		fails     error
		err       error

		result             ctrl.Result
		errs               []error
		patches, announced int
	}{
		"nothing changed":                    {change: func(*infrav1.LibvirtHost) {}, result: usual},
		"nothing changed, after a fault":     {change: func(*infrav1.LibvirtHost) {}, err: broken, errs: []error{broken}},
		"number and condition are one patch": {change: change, result: usual, patches: 1, announced: 1},
		"after a fault":                      {change: change, err: broken, errs: []error{broken}, patches: 1, announced: 1},
		"another writer was faster": {change: change, patches: 1, result: ctrl.Result{RequeueAfter: outcome.ConflictDelay},
			meanwhile: func(g *WithT, c client.Client, host *infrav1.LibvirtHost) {
				other := host.DeepCopy()
				other.Status.LibvirtVersion = "9.0.0"
				g.Expect(c.Status().Patch(context.Background(), other, client.MergeFrom(host))).To(Succeed())
			}},
		"the object was deleted": {change: change, patches: 1, result: usual,
			meanwhile: func(g *WithT, c client.Client, host *infrav1.LibvirtHost) {
				g.Expect(c.Delete(context.Background(), host)).To(Succeed())
			}},
		"refused": {change: change, patches: 1, fails: refused, errs: []error{refused}},
		"refused after a fault": {change: change, patches: 1, fails: refused, err: broken,
			errs: []error{refused, broken}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
			patches, announced, counted := 0, 0, false
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&infrav1.LibvirtHost{}).
				WithObjects(&infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: "host"}}).
				WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
					if counted {
						patches++
						if test.fails != nil {
							return test.fails
						}
					}
					return c.SubResource(sub).Patch(ctx, object, patch, options...)
				}}).Build()
			host := &infrav1.LibvirtHost{}
			g.Expect(c.Get(t.Context(), client.ObjectKey{Name: "host"}, host)).To(Succeed())
			before := host.DeepCopy()
			if test.meanwhile != nil {
				test.meanwhile(g, c, before.DeepCopy())
			}
			test.change(host)
			counted = true
			result, err := outcome.End(t.Context(), c, doing, before, host, usual, test.err, func(was, is *infrav1.LibvirtHost) {
				announced++
				g.Expect(was.Status.Machines).To(BeNil())
				g.Expect(is.Status.Machines).To(HaveValue(BeEquivalentTo(3)))
			})
			g.Expect(result).To(Equal(test.result))
			if len(test.errs) == 0 {
				g.Expect(err).ToNot(HaveOccurred())
			}
			for _, wanted := range test.errs {
				g.Expect(err).To(MatchError(wanted))
			}
			if test.fails != nil {
				g.Expect(err).To(MatchError(ContainSubstring(doing)))
			}
			g.Expect([]int{patches, announced}).To(Equal([]int{test.patches, test.announced}))
		})
	}
}
