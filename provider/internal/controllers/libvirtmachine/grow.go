package libvirtmachine

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// growRunning makes the disks of a running domain as large as its spec asks for, and returns false where
// the host can't do that: then it is done while nothing runs, as everything else is.
func (s *scope) growRunning(ctx context.Context, has extent, refs map[string]hypervisor.VolumeRef) (bool, error) {
	log := ctrl.LoggerFrom(ctx)
	for _, name := range has.missing(&s.infra.Spec) {
		err := s.connection.GrowDisk(ctx, s.uuid, refs[name], diskSizes(&s.infra.Spec)[name].Value())
		if errors.Is(err, hypervisor.ErrUnsupported) {
			log.Info("The disk can't grow while the guest runs: it has to shut down", "LibvirtHost", s.host.Name, "err", err)
			return false, nil
		}
		if err != nil {
			return false, err
		}
		log.Info("Made a disk of the running machine larger", "LibvirtHost", s.host.Name, "volume", refs[name].String())
	}
	return true, nil
}
