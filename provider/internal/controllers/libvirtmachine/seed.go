package libvirtmachine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

// ensureSeed uploads the bootstrap data to the host, with the addresses from pools. It waits until all of them are
// allocated. An interrupted upload can't be detected, so the small file is uploaded again until the machine is started.
func (s *scope) ensureSeed(ctx context.Context) (verdict, error) {
	if len(s.unallocated) > 0 {
		return stop, nil
	}
	data, problem, err := s.bootstrapData(ctx)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	if problem != "" {
		s.requeueWithin(noFitDelay)
		return s.waitFor(infrav1.InstanceReadyCondition, infrav1.WaitingForBootstrapDataReason, "%s", problem)
	}
	content, err := s.seedContent(data)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, err)
	}
	volume, err := s.uploadSeed(ctx, content)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InstanceCreationFailedReason, fmt.Errorf("the seed: %w", err))
	}
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		s.ignitionPath = volume.Path
	} else {
		s.seed = &volume.VolumeRef
	}
	return goOn, nil
}

// bootstrapSecret returns the name of the Secret with the bootstrap data, or a problem if there is none. The Machines
// of a MachinePool have an empty name: they share the Secret in the spec of the MachinePool.
func (s *scope) bootstrapSecret(ctx context.Context) (name, problem string, err error) {
	owner := metav1.GetControllerOf(s.machine)
	switch name := s.machine.Spec.Bootstrap.DataSecretName; {
	case name == nil:
		return "", "Waiting for spec.bootstrap.dataSecretName of the Machine to be set", nil
	case *name != "":
		return *name, "", nil
	case owner == nil || owner.Kind != "MachinePool":
		return "", "spec.bootstrap.dataSecretName of the Machine is empty, which it can only be for a Machine of a MachinePool", nil
	}
	pool := &clusterv1.MachinePool{}
	err = s.Client.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: owner.Name}, pool)
	if client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("reading the MachinePool: %w", err)
	}
	if name = ptr.Deref(pool.Spec.Template.Spec.Bootstrap.DataSecretName, ""); name == "" {
		return "", "Waiting for spec.template.spec.bootstrap.dataSecretName of the MachinePool to be set", nil
	}
	return name, "", nil
}

// bootstrapData reads the Secret of the Machine or its MachinePool from the API server. problem never has content of
// the Secret.
func (s *scope) bootstrapData(ctx context.Context) (data []byte, problem string, err error) {
	if s.isLoadBalancer() {
		data, err = loadbalancer.UserData()
		return data, "", err
	}
	name, problem, err := s.bootstrapSecret(ctx)
	if err != nil || problem != "" {
		return nil, problem, err
	}
	secret := &corev1.Secret{}
	err = s.APIReader.Get(ctx, client.ObjectKey{Namespace: s.infra.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Sprintf("The Secret %s with the bootstrap data doesn't exist", name), nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the Secret %s with the bootstrap data: %w", name, err)
	}
	actual := cmp.Or(infrav1.BootstrapFormat(secret.Data["format"]), infrav1.BootstrapFormatCloudConfig)
	wanted := cmp.Or(s.infra.Spec.BootstrapFormat, infrav1.BootstrapFormatCloudConfig)
	switch {
	case len(secret.Data["value"]) == 0:
		return nil, fmt.Sprintf("The Secret %s has no bootstrap data under the key value", name), nil
	case actual != wanted && (actual == infrav1.BootstrapFormatCloudConfig || actual == infrav1.BootstrapFormatIgnition):
		return nil, fmt.Sprintf("The bootstrap data is of format %s, and spec.bootstrapFormat is %s: change one of them", actual, wanted), nil
	case actual != wanted:
		return nil, fmt.Sprintf("The Secret %s has another format of bootstrap data than spec.bootstrapFormat, which is %s", name, wanted), nil
	}
	return secret.Data["value"], "", nil
}

// seedContent returns the content of the seed: a NoCloud disk, or the Ignition configuration with files for
// interfaces with addresses from pools.
func (s *scope) seedContent(data []byte) ([]byte, error) {
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		return seed.Ignition(data, s.seedInterfaces())
	}
	content := seed.Seed{InstanceID: s.uuid, Hostname: s.infra.Name, UserData: data, Interfaces: s.seedInterfaces()}
	if s.isLoadBalancer() {
		disk, err := content.ISO()
		if err != nil {
			return nil, err
		}
		return loadbalancer.Disk(disk, s.balancer.File())
	}
	content.AvailabilityZone, content.Host = s.topology()
	return content.ISO()
}

// topology returns the failure domain and the host of the machine as label values. Names that aren't valid label values
// are replaced: a kubelet with an invalid label doesn't start.
func (s *scope) topology() (failureDomain, host string) {
	return format.MustFormatValue(cmp.Or(s.host.Spec.FailureDomain, s.host.Name)), format.MustFormatValue(s.host.Name)
}

// laterMetric is the base of the metrics of default routes of all interfaces but the first. It is above the metrics
// that systemd-networkd and NetworkManager use for routes from DHCP, so that the default route of the first interface
// always wins.
const laterMetric = 1024

// seedInterfaces returns the configuration of the guest's interfaces, or nothing if the image's defaults apply.
func (s *scope) seedInterfaces() []seed.Interface {
	var all []seed.Interface
	needed := false
	for i, nic := range s.infra.Spec.Interfaces {
		needed = needed || s.isStatic(i) || len(nic.Nameservers) > 0
		one := seed.Interface{MAC: s.mac(i)}
		if virtual := s.balancer.VirtualAddress; i == 0 && virtual.IsValid() {
			needed, one.DHCP, one.Addresses = true, true, []netip.Prefix{netip.PrefixFrom(virtual, virtual.BitLen())}
		}
		if i > 0 {
			one.Metric = laterMetric + i
		}
		hasGateway := map[bool]bool{}
		for _, address := range s.claimed[i] {
			one.Addresses = append(one.Addresses, address.Prefix)
			if v4 := address.Addr().Is4(); address.Gateway.IsValid() && !hasGateway[v4] {
				hasGateway[v4] = true // the first pool of each IP family sets the gateway
				one.Gateways = append(one.Gateways, address.Gateway)
			}
		}
		for _, server := range nic.Nameservers {
			address, _ := netip.ParseAddr(server) // validated by the webhook; package seed rejects an invalid address
			one.Nameservers = append(one.Nameservers, address)
		}
		all = append(all, one)
	}
	if !needed {
		return nil
	}
	return all
}

func (s *scope) uploadSeed(ctx context.Context, content []byte) (hypervisor.Volume, error) {
	ref, size := s.seedRef(), int64(len(content))
	spec := hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: size}
	volume, err := s.connection.CreateVolume(ctx, spec)
	if errors.Is(err, hypervisor.ErrAlreadyExists) {
		volume, err = s.connection.Volume(ctx, ref)
		if err == nil && volume.CapacityBytes != size {
			// The volume has other bootstrap data, which may be longer.
			if err = s.connection.DeleteVolume(ctx, ref); err == nil {
				volume, err = s.connection.CreateVolume(ctx, spec)
			}
		}
	}
	if err != nil {
		return volume, err
	}
	return volume, s.connection.UploadVolume(ctx, ref, bytes.NewReader(content), size)
}

// seedDelay is the delay before the next attempt to detach a seed that is in use.
const seedDelay = 30 * time.Second

// removeSeed deletes the bootstrap data, with its secrets, from the host once the Machine has a node.
func (s *scope) removeSeed(ctx context.Context) (verdict, error) {
	if conditions.IsTrue(s.infra, infrav1.SeedRemovedCondition) {
		return goOn, nil
	}
	if s.machine.Status.NodeRef == (clusterv1.MachineNodeReference{}) {
		s.set(infrav1.SeedRemovedCondition, metav1.ConditionFalse, infrav1.WaitingForNodeReason,
			"Waiting for status.nodeRef of the Machine. %s", s.seeConsole())
		return goOn, nil
	}
	if err := s.detachSeed(ctx); errors.Is(err, hypervisor.ErrBusy) {
		s.requeueWithin(seedDelay)
		return s.waitFor(infrav1.SeedRemovedCondition, infrav1.SeedInUseReason, "%s", err.Error())
	} else if err != nil {
		return s.failed(infrav1.SeedRemovedCondition, infrav1.InternalErrorReason, err)
	}
	return s.deleteSeed(ctx)
}

// detachSeed removes the seed from the domain and its definition.
func (s *scope) detachSeed(ctx context.Context) error {
	if s.domain == nil {
		return nil
	}
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		// The guest has read it, and the running domain doesn't need its file any more.
		return s.connection.RemoveIgnition(ctx, s.uuid)
	}
	for _, disk := range s.domain.Disks {
		if disk.Name == s.seedRef().Name {
			return s.connection.DetachDisk(ctx, s.uuid, disk)
		}
	}
	// The known disks may be outdated.
	return hypervisor.IgnoreNotFound(s.connection.DetachDisk(ctx, s.uuid, s.seedRef()))
}

// deleteSeed deletes the volume of the seed in any pool: the default pool may have changed since it was created. The
// caller has made sure that no domain has the seed. The machine may continue to exist.
func (s *scope) deleteSeed(ctx context.Context) (verdict, error) {
	if conditions.IsTrue(s.infra, infrav1.SeedRemovedCondition) {
		return goOn, nil
	}
	for _, pool := range s.pools() {
		err := s.connection.DeleteVolume(ctx, s.volume(pool, "seed"))
		if hypervisor.IgnoreNotFound(err) != nil {
			return s.failed(infrav1.SeedRemovedCondition, infrav1.InternalErrorReason, err)
		}
	}
	ctrl.LoggerFrom(ctx).Info("Removed the seed", "LibvirtHost", s.host.Name)
	s.setTrue(infrav1.SeedRemovedCondition, infrav1.SeedRemovedReason)
	return goOn, nil
}
