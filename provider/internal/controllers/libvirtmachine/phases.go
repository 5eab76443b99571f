package libvirtmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/images"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
)

// phases are the life of a machine, in their order. Each looks at what is there, compares it with what
// is asked for, and then makes or changes it: the controller may be killed after any call, and goes on
// after a restart. A phase that stops is where the machine is; it has said why in its condition.
var phases = []phase{
	{when: (*scope).isLoadBalancer, do: (*scope).readConfiguration},
	{when: (*scope).isUnbound, do: (*scope).checkPrerequisites},
	{when: (*scope).isUnbound, do: (*scope).bind},
	{when: (*scope).isUnproven, do: (*scope).checkAllowed},
	{when: (*scope).isClaim, do: (*scope).checkClaim},
	{do: (*scope).reachHost},
	{do: (*scope).lookAtInstance},
	{when: (*scope).isCreating, do: (*scope).checkForCertain},
	{when: (*scope).isCreating, do: (*scope).ensureClaims},
	{when: (*scope).isCreating, do: (*scope).ensureImage},
	{when: (*scope).isCreating, do: (*scope).ensureRootDisk},
	{when: (*scope).isCreating, do: (*scope).ensureExtraDisks},
	{when: (*scope).isCreating, do: (*scope).awaitClaims},
	{when: (*scope).isCreating, do: (*scope).ensureSeed},
	{when: (*scope).isCreating, do: (*scope).ensureDomain},
	{when: (*scope).isCreating, do: (*scope).startDomain},
	{when: (*scope).isOff, do: (*scope).startAgain},
	{do: (*scope).findAddresses},
	{when: (*scope).wantsLateCopiesRemoved, do: (*scope).removeLateCopies},
	{do: (*scope).finishProvisioning},
	{when: (*scope).isLoadBalancer, do: (*scope).configure},
	{when: (*scope).hasMachine, do: (*scope).setNodeProviderID},
	{when: (*scope).isSteady, do: (*scope).endGrowth},
	{when: (*scope).isUpdating, do: (*scope).updateInPlace},
	{when: (*scope).hasMachine, do: (*scope).removeSeed},
}

// phase is a step in the life of a machine.
type phase struct {
	// when says whether the step is to be taken. Always when it is nil.
	when func(*scope) bool
	// do takes the step. Nothing comes after it when it stops or fails.
	do func(*scope, context.Context) (verdict, error)
}

// verdict says how it goes on after a phase.
type verdict int

const (
	goOn verdict = iota
	stop
)

// scope is what one reconcile works on.
type scope struct {
	*Reconciler
	// infra is changed while it is reconciled, and its status written at the end.
	infra *infrav1.LibvirtMachine
	// machine owns infra, and cluster is what both belong to. Either may be nil while infra is deleted. A
	// load balancer has no machine.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// balancer is what infra is to do if it is a load balancer.
	balancer loadbalancer.Configuration

	// uuid is that of the domain, from spec.providerID. Empty while the machine isn't bound.
	uuid string
	// host is what the machine is bound to, snapshot what was last seen of it, and connection the way
	// to it.
	host       *infrav1.LibvirtHost
	snapshot   fleet.Snapshot
	connection hypervisor.Hypervisor
	// domain is what is there, or nil.
	domain *hypervisor.Domain
	// image and the rest are what the domain is made of. wish is what the image was asked for with, if it has a URL.
	image        images.Image
	wish         images.Wish
	rootDisk     domainxml.Disk
	extraDisks   map[string]domainxml.Disk
	seed         *hypervisor.VolumeRef
	ignitionPath string
	// claimed are the addresses that interfaces were given from pools, by their index, and notGiven the
	// claims that have none. claimed is nil as long as nobody has looked.
	claimed  map[int][]claims.Address
	notGiven []*claims.NotGivenError

	// written says that something was written that brings the object here again.
	written bool
	// transferring says that an image or a copy of one is under way for the machine.
	transferring bool
	// making says that something may have been made on the host in this reconcile.
	making bool
	// after is when to look again, if nothing brings the object here sooner. Never when it is 0.
	after time.Duration
	errs  []error
}

// run goes through the phases.
func (s *scope) run(ctx context.Context) error {
	for _, phase := range phases {
		if phase.when != nil && !phase.when(s) {
			continue
		}
		if verdict, err := phase.do(s, ctx); err != nil || verdict == stop {
			return err
		}
	}
	return nil
}

func (s *scope) err() error { return errors.Join(s.errs...) }

// lookAgain asks for another reconcile at the latest after some time.
func (s *scope) lookAgain(after time.Duration) {
	if s.after == 0 || after < s.after {
		s.after = after
	}
}

func (s *scope) key() client.ObjectKey { return client.ObjectKeyFromObject(s.infra) }

// noRoom remembers that the machine's host is full, so that others go elsewhere, has it look at its storage pools
// again, and says it.
func (s *scope) noRoom(err error) error {
	s.Scheduler.SetFull(s.host.Name, true)
	for _, pool := range append(s.pools(), s.host.Spec.StoragePools.Images) {
		s.Hosts.RefreshPool(s.host.Name, pool)
	}
	return fmt.Errorf("host %s has no room: %w", s.host.Name, err)
}

// Everything on a host is named from the UUID in spec.providerID, which is written before anything is
// made, and from the machine's namespace and name: a controller that begins anew finds what was made, and
// nothing that is another machine's.

// domainName is the name of the domain on its host.
func (s *scope) domainName() string {
	return hypervisor.DomainName(s.uuid, s.infra.Namespace, s.infra.Name)
}

func (s *scope) owner() hypervisor.Owner {
	return hypervisor.Owner{Cluster: s.clusterName(), Namespace: s.infra.Namespace, Name: s.infra.Name}
}

// volumePrefix begins the names of all volumes of the machine.
func (s *scope) volumePrefix() string {
	return hypervisor.VolumePrefix(s.uuid, s.infra.Namespace, s.infra.Name)
}

func (s *scope) volume(pool, what string) hypervisor.VolumeRef {
	return hypervisor.VolumeRef{Pool: pool, Name: s.volumePrefix() + what}
}

// pool is the storage pool for a disk that asks for one, or for none.
func (s *scope) pool(wanted string) string {
	if wanted == "" && len(s.host.Spec.StoragePools.Disks) > 0 {
		return s.host.Spec.StoragePools.Disks[0]
	}
	return wanted
}

func (s *scope) rootRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "root")
}

func (s *scope) seedRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "seed")
}

// pools are all storage pools that something of the machine may be in, sorted.
func (s *scope) pools() []string {
	pools := append([]string{s.pool(s.infra.Spec.RootDisk.Pool)}, s.host.Spec.StoragePools.Disks...)
	for _, disk := range s.infra.Spec.ExtraDisks {
		pools = append(pools, s.pool(disk.Pool))
	}
	if s.domain != nil {
		for _, disk := range s.domain.Disks {
			pools = append(pools, disk.Pool)
		}
	}
	slices.Sort(pools)
	return slices.DeleteFunc(slices.Compact(pools), func(pool string) bool { return pool == "" })
}

func (s *scope) mac(nic int) string {
	return cmp.Or(s.infra.Spec.Interfaces[nic].MACAddress, domainxml.MACAddress(s.uuid, nic))
}
