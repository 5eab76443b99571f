package libvirtmachine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
)

// configurationInterval is the interval of uploading an unchanged configuration of a load balancer again.
const configurationInterval = 10 * time.Minute

// A load balancer is a machine that a LibvirtCluster creates. It has no Machine, no node and no secrets. Its user-data
// is built in. Its seed stays, because the guest reads HAProxy's configuration from that disk.

// isLoadBalancer reports whether a machine is a load balancer, whose controller is its LibvirtCluster.
func isLoadBalancer(infra *infrav1.LibvirtMachine) bool {
	owner, name := metav1.GetControllerOf(infra), infra.Labels[infrav1.LoadBalancerLabel]
	return owner != nil && owner.Kind == "LibvirtCluster" && name != ""
}

func (s *scope) isLoadBalancer() bool { return s.machine == nil && isLoadBalancer(s.infra) }

func (s *scope) hasMachine() bool { return s.machine != nil }

// hasOwnEndpoint reports whether the control plane endpoint is an address of the machine's interface.
func (s *scope) hasOwnEndpoint() bool {
	return s.isLoadBalancer() && !s.balancer.VirtualAddress.IsValid()
}

// readConfiguration reads the configuration of a load balancer.
func (s *scope) readConfiguration(context.Context) (verdict, error) {
	configuration, err := loadbalancer.Parse(s.infra.Annotations[infrav1.LoadBalancerConfigurationAnnotation])
	if err != nil { // its LibvirtCluster writes it again
		return s.waitFor(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfigurationFailedReason,
			"The annotation %s: %s", infrav1.LoadBalancerConfigurationAnnotation, err.Error())
	}
	s.balancer = configuration
	return goOn, nil
}

// configure uploads HAProxy's configuration to the host while the guest runs. The last upload is in memory only: a
// restarted manager uploads the configuration again, which changes nothing. Every manager repeats the upload from time
// to time, because a former leader may have uploaded an older one. The guest ignores an incomplete upload.
func (s *scope) configure(ctx context.Context) (verdict, error) {
	data, err := loadbalancer.UserData()
	var content []byte
	if err == nil {
		content, err = s.seedContent(data)
	}
	if err != nil {
		return s.failed(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfigurationFailedReason, err)
	}
	sum := sha256.Sum256(content)
	value, _ := s.configured.Load(s.key())
	disk, _ := value.(uploadedDisk)
	if disk.machine != s.infra.UID || disk.sum != sum || !time.Now().Before(disk.until) {
		ref, err := s.diskOfConfiguration(ctx)
		if err == nil {
			err = s.connection.UploadVolume(ctx, ref, bytes.NewReader(content), int64(len(content)))
		}
		if err != nil {
			return s.failed(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfigurationFailedReason, err)
		}
		ctrl.LoggerFrom(ctx).Info("Uploaded the configuration of the load balancer", "servers", s.balancer.Servers)
		disk = uploadedDisk{machine: s.infra.UID, sum: sum, until: time.Now().Add(configurationInterval)}
		s.configured.Store(s.key(), disk)
	}
	s.requeueWithin(max(time.Until(disk.until), time.Second))
	s.setTrue(infrav1.LoadBalancerConfiguredCondition, infrav1.LoadBalancerConfiguredReason)
	return goOn, nil
}

// diskOfConfiguration finds the seed in any pool: the default pool may have changed since it was created.
func (s *scope) diskOfConfiguration(ctx context.Context) (hypervisor.VolumeRef, error) {
	ref, err := s.seedRef(), error(nil)
	for _, pool := range append([]string{ref.Pool}, s.pools()...) {
		if _, err = s.connection.Volume(ctx, s.volume(pool, "seed")); !errors.Is(err, hypervisor.ErrNotFound) {
			return s.volume(pool, "seed"), err
		}
	}
	return ref, err
}

// uploadedDisk is the last upload to the disk of a load balancer.
type uploadedDisk struct {
	machine types.UID
	sum     [sha256.Size]byte
	// until is when the content is uploaded again.
	until time.Time
}
