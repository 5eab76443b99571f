package libvirtmachine

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// reachHost finds the host that the machine is bound to, and the connection to it.
func (s *scope) reachHost(ctx context.Context) (verdict, error) {
	if err := s.readHost(ctx); err != nil {
		if apierrors.IsNotFound(err) {
			s.set(infrav1.InstanceReadyCondition, metav1.ConditionUnknown, infrav1.HostNotFoundReason, "Its LibvirtHost doesn't exist")
			s.infra.Status.InstanceState = infrav1.InstanceUnknown
			return s.waitFor(infrav1.HostBoundCondition, infrav1.HostNotFoundReason, "There is no LibvirtHost %s: create it again", s.infra.Spec.HostName)
		}
		return s.failed(infrav1.HostBoundCondition, infrav1.InternalErrorReason, err)
	}
	s.setTrue(infrav1.HostBoundCondition, infrav1.HostBoundReason)
	s.infra.Status.FailureDomain = cmp.Or(s.host.Spec.FailureDomain, s.host.Name)
	connection, err := s.Hosts.Hypervisor(s.host.Name)
	if err != nil {
		s.infra.Status.InstanceState = infrav1.InstanceUnknown
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	s.connection = connection
	s.snapshot, _ = s.Hosts.Snapshot(s.host.Name)
	return goOn, nil
}

func (s *scope) readHost(ctx context.Context) error {
	host := &infrav1.LibvirtHost{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Spec.HostName}, host); err != nil {
		return fmt.Errorf("reading LibvirtHost %s: %w", s.infra.Spec.HostName, err)
	}
	s.host = host
	return nil
}
