package libvirtmachine

import (
	"context"

	"k8s.io/utils/ptr"
)

// finishProvisioning says that the machine is there, once and for good: its domain has been started,
// and has addresses if anything gives it some.
func (s *scope) finishProvisioning(context.Context) (verdict, error) {
	if !s.isProvisioned() {
		s.Scheduler.SetFull(s.host.Name, false)
	}
	s.infra.Status.Initialization.Provisioned = ptr.To(true)
	return goOn, nil
}
