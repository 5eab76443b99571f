package libvirtmachine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/seed"
)

// ensureSeed brings the bootstrap data to the host. An upload that was cut off can't be told from one
// that wasn't, so it is uploaded again each time that the machine isn't started yet: it is small.
func (s *scope) ensureSeed(ctx context.Context) (verdict, error) {
	data, problem, err := s.bootstrapData(ctx)
	if err != nil {
		return s.failed(infrav1.InstanceReadyCondition, infrav1.InternalErrorReason, err)
	}
	if problem != "" {
		s.lookAgain(noFitDelay)
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

// bootstrapSecret returns the name of the Secret with the bootstrap data, or what it waits for. Cluster
// API gives the Machines of a MachinePool an empty name: the pool's machines share the bootstrap data,
// and only the MachinePool names it.
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

// bootstrapData reads the Secret that the Machine or its MachinePool names, from the API server itself. problem says what
// is wrong with it, and never what is in it.
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
	made := cmp.Or(infrav1.BootstrapFormat(secret.Data["format"]), infrav1.BootstrapFormatCloudConfig)
	wanted := cmp.Or(s.infra.Spec.BootstrapFormat, infrav1.BootstrapFormatCloudConfig)
	switch {
	case len(secret.Data["value"]) == 0:
		return nil, fmt.Sprintf("The Secret %s has no bootstrap data under the key value", name), nil
	case made != wanted && (made == infrav1.BootstrapFormatCloudConfig || made == infrav1.BootstrapFormatIgnition):
		return nil, fmt.Sprintf("The bootstrap data is of format %s, and spec.bootstrapFormat is %s: change one of them", made, wanted), nil
	case made != wanted:
		return nil, fmt.Sprintf("The Secret %s has another format of bootstrap data than spec.bootstrapFormat, which is %s", name, wanted), nil
	}
	return secret.Data["value"], "", nil
}

// seedContent is what the guest reads: a NoCloud disk, or the Ignition configuration as it is.
func (s *scope) seedContent(data []byte) ([]byte, error) {
	if s.infra.Spec.BootstrapFormat == infrav1.BootstrapFormatIgnition {
		return data, nil
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

// topology is the failure domain and the host of the machine as values of labels. Both names can be longer than labels
// may be, and a kubelet that is given such a label doesn't start.
func (s *scope) topology() (failureDomain, host string) {
	return format.MustFormatValue(cmp.Or(s.host.Spec.FailureDomain, s.host.Name)), format.MustFormatValue(s.host.Name)
}

func (s *scope) uploadSeed(ctx context.Context, content []byte) (hypervisor.Volume, error) {
	ref, size := s.seedRef(), int64(len(content))
	spec := hypervisor.VolumeSpec{VolumeRef: ref, Format: hypervisor.FormatRaw, CapacityBytes: size}
	volume, err := s.connection.CreateVolume(ctx, spec)
	if errors.Is(err, hypervisor.ErrAlreadyExists) {
		volume, err = s.connection.Volume(ctx, ref)
		if err == nil && volume.CapacityBytes != size {
			// Of other bootstrap data, which may have been longer.
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
