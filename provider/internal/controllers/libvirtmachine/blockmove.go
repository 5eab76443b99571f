package libvirtmachine

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// moveDelay is how often to look whether a transfer of a paused machine has ended. Its end brings the
// machine here sooner.
const moveDelay = 10 * time.Second

// blockMove sets the annotation clusterctl.cluster.x-k8s.io/block-move while something is being
// transferred for the machine, and removes it otherwise: `clusterctl move` waits as long (Cluster API's
// provider contract for clusterctl, "Move"). before is what was read; both are as written afterwards.
func (s *scope) blockMove(ctx context.Context, before *infrav1.LibvirtMachine) error {
	if _, blocked := before.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked == s.transferring {
		return nil
	}
	written, err := s.setBlockMove(ctx, before, s.transferring)
	if err != nil {
		return err
	}
	for _, infra := range []*infrav1.LibvirtMachine{before, s.infra} {
		infra.Annotations, infra.ResourceVersion = written.Annotations, written.ResourceVersion
	}
	return nil
}

// setBlockMove writes the annotation and nothing else, and returns what is there then.
func (r *Reconciler) setBlockMove(ctx context.Context, infra *infrav1.LibvirtMachine, block bool) (*infrav1.LibvirtMachine, error) {
	changed := infra.DeepCopy()
	delete(changed.Annotations, clusterctlv1.BlockMoveAnnotation)
	if block {
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
	}
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(infra, client.MergeFromWithOptimisticLock{}))
	return changed, wrap(err, "writing the annotation "+clusterctlv1.BlockMoveAnnotation)
}

// letMove sees to it that a paused machine can be moved. What is under way, as the annotation says, comes
// to its end, which is waited for; nothing begins anew. Whoever has set the annotation may have been
// killed, and then nothing is under way.
func (r *Reconciler) letMove(ctx context.Context, infra *infrav1.LibvirtMachine) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(infra)
	_, blocked := infra.Annotations[clusterctlv1.BlockMoveAnnotation]
	if blocked && (r.Images.UnderWay(key) || r.copies.underWay(key)) {
		return ctrl.Result{RequeueAfter: moveDelay}, nil
	}
	r.Images.Forget(key)
	r.copies.forget(key)
	if !blocked {
		return ctrl.Result{}, nil
	}
	_, err := r.setBlockMove(ctx, infra, false)
	return again(client.IgnoreNotFound(err))
}
