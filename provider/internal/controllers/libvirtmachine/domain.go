package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// ensureDomain defines the domain, as it should be now. To define the same again changes nothing.
func (s *scope) ensureDomain(ctx context.Context) (verdict, error) {
	if requests := s.exclusiveRequests(); len(requests) > 0 {
		return s.ensureExclusive(ctx, requests)
	}
	return s.define(ctx, nil)
}

// define defines the domain with what was chosen for it alone.
func (s *scope) define(ctx context.Context, chosen map[string][]exclusive.Thing) (verdict, error) {
	namespace := &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: s.infra.Namespace}, namespace); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, fmt.Errorf("reading the namespace: %w", err))
	}
	definition, err := s.definition(chosen, access.Networks(s.host, namespace))
	if err != nil {
		// To try again won't help: the spec, or the host's, has to change.
		return s.waitFor(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, "spec: %s", err.Error())
	}
	err = s.connection.DefineDomain(ctx, definition)
	if errors.Is(err, hypervisor.ErrAlreadyExists) {
		return s.nameTaken()
	}
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	if err := s.connection.SetAutostart(ctx, s.uuid, ptr.Deref(s.infra.Spec.Autostart, true)); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	return goOn, nil
}

func (s *scope) definition(chosen map[string][]exclusive.Thing, networks []infrav1.HostNetwork) (hypervisor.Definition, error) {
	cpus := exclusive.CPUsOf(&s.host.Spec, s.snapshot.Facts)
	if len(cpus.Dedicated) > 0 && cpus.Shared == "" && !exclusive.Dedicated(&s.infra.Spec) {
		return hypervisor.Definition{}, fmt.Errorf("dedicatedCPUs of LibvirtHost %s has all CPUs of the host, and none is left for machines without cpu.dedicated", s.host.Name)
	}
	failureDomain, host := s.topology()
	return domainxml.Machine{
		UUID: s.uuid, Name: s.domainName(), Owner: s.owner(), Spec: &s.infra.Spec,
		Emulated: !slices.Contains(s.snapshot.Facts.Features, hypervisor.FeatureKVM),
		RootDisk: s.rootDisk, ExtraDisks: s.extraDisks, Seed: s.seed, IgnitionPath: s.ignitionPath,
		AvailabilityZone: failureDomain, Host: host,
		Networks: networks, Addresses: s.knownAddresses(), HostDevices: hostDevices(chosen), DedicatedCPUs: dedicatedCPUs(chosen), SharedCPUs: cpus.Shared,
	}.Definition()
}

// startDomain starts the domain, unless it has stopped several times soon after that.
func (s *scope) startDomain(ctx context.Context) (verdict, error) {
	if at, stops := s.starts.next(s.key(), s.infra.UID, time.Now()); time.Now().Before(at) {
		return s.backOff(at, stops)
	}
	if err := s.connection.StartDomain(ctx, s.uuid); err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	s.starts.add(s.key(), s.infra.UID, time.Now())
	log := ctrl.LoggerFrom(ctx)
	log.Info("Started the domain", "LibvirtHost", s.host.Name, "domain", s.domainName())
	if err := s.Hosts.Refresh(ctx, s.host.Name, s.uuid); err != nil {
		log.Info("What is known of the domain may be old for a while", "err", err)
	}
	s.domain = &hypervisor.Domain{UUID: s.uuid, Name: s.domainName(), State: hypervisor.StateRunning}
	s.setInstance()
	return goOn, nil
}

// nameTaken says that another domain has the name of the machine's.
func (s *scope) nameTaken() (verdict, error) {
	s.lookAgain(noFitDelay)
	return s.waitFor(infrav1.InstanceReadyCondition, infrav1.DomainNameTakenReason,
		"Host %s has another domain with the name %s, or with the UUID of spec.providerID, which is left alone: rename or undefine it there, or delete the Machine",
		s.host.Name, s.domainName())
}
