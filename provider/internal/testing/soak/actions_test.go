package soak

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/fake"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

// actions are the faults, and the actions of users.
var actions = []struct {
	name string
	do   func(*soak, context.Context) error
}{
	{"scale", (*soak).scale},
	{"scale", (*soak).scale},
	{"delete a machine", (*soak).deleteMachine},
	{"write to an object", (*soak).touch},
	{"write to an object", (*soak).touch},
	{"lose a host", (*soak).loseHost},
	{"a call fails", (*soak).failCall},
	{"a call fails", (*soak).failCall},
	{"a call fails", (*soak).failCall},
	{"a host answers late", (*soak).slowHost},
	{"remove a domain", (*soak).removeDomain},
	{"delete a volume", (*soak).deleteVolume},
	{"trouble at the API server", (*soak).troubleAPI},
	{"late caches", (*soak).lateCaches},
	{"late caches", (*soak).lateCaches},
	{"trouble at the image server", (*soak).troubleImages},
	{"fill a disk", (*soak).fillDisk},
	{"kill the manager", (*soak).kill},
	{"two managers at once", (*soak).takeOver},
}

func sortByName(deployments []*clusterv1.MachineDeployment) {
	slices.SortFunc(deployments, func(a, b *clusterv1.MachineDeployment) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *soak) host() *world.Host { return s.Hosts[s.random.IntN(len(s.Hosts))] }

// machine returns a random machine, or nil if there is none.
func (s *soak) machine() *infrav1.LibvirtMachine {
	number := s.random.Uint32()
	all := s.LibvirtMachines()
	if len(all) == 0 {
		return nil
	}
	return &all[int(number)%len(all)]
}

func (s *soak) scale(context.Context) error {
	deployment := s.deployments[s.random.IntN(len(s.deployments))]
	replicas := int32(s.random.IntN(maxReplicas + 1))
	before := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = &replicas
	// The context isn't that of the chaos: the number of replicas must be known afterwards.
	return s.Client.Patch(s.t.Context(), deployment, before)
}

func (s *soak) deleteMachine(ctx context.Context) error {
	infra := s.machine()
	if infra == nil {
		return nil
	}
	return client.IgnoreNotFound(s.Client.Delete(ctx, &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name}}))
}

// touch changes an object that the controllers write to, so that their copies are old.
func (s *soak) touch(ctx context.Context) error {
	var object client.Object = &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Name: s.host().Name}}
	if infra := s.machine(); infra != nil && s.random.IntN(4) > 0 {
		object = infra
	}
	before := client.MergeFrom(object.DeepCopyObject().(client.Object))
	object.SetAnnotations(map[string]string{"soak": time.Now().String()})
	return client.IgnoreNotFound(s.Client.Patch(ctx, object, before))
}

// later runs a function after some time, or when the test ends.
func (s *soak) later(do func()) {
	wait := time.Duration(100+s.random.IntN(2000)) * time.Millisecond
	time.AfterFunc(wait, do)
}

func (s *soak) loseHost(context.Context) error {
	host := s.host()
	host.SetReachable(false)
	s.later(func() { host.SetReachable(true) })
	return nil
}

var (
	operations = []fake.Operation{fake.Connect, fake.Facts, fake.NewWatch, fake.Pool, fake.Volume, fake.PoolVolumes, fake.CreateVolume,
		fake.CloneVolume, fake.UploadVolume, fake.DeleteVolume, fake.Domain, fake.ListDomains, fake.DefineDomain, fake.SetAutostart,
		fake.StartDomain, fake.StopDomain, fake.UndefineDomain, fake.DetachDisk, fake.DomainAddresses}
	reasons = []error{hypervisor.ErrTimeout, hypervisor.ErrUnreachable, hypervisor.ErrNoSpace, hypervisor.ErrBusy, hypervisor.ErrDenied, hypervisor.ErrOther}
)

func (s *soak) failCall(context.Context) error {
	host := s.host()
	fault := fake.Fault{Operation: operations[s.random.IntN(len(operations))], Skip: s.random.IntN(3), Times: 1 + s.random.IntN(3), AfterDone: s.random.IntN(2) == 0}
	switch s.random.IntN(4) {
	case 0:
		fault.Effect = fake.Disconnect
	case 1:
		fault.Effect = fake.Hang
		s.later(func() {
			host.SetReachable(false) // the call hangs until its connection ends
			host.SetReachable(true)
		})
	default:
		fault.Effect, fault.Reason = fake.Fail, reasons[s.random.IntN(len(reasons))]
		if fault.AfterDone && !hypervisor.Uncertain(fault.Reason) {
			fault.Reason = hypervisor.ErrTimeout // a refused call is never processed
		}
	}
	host.Inject(fault)
	return nil
}

func (s *soak) slowHost(context.Context) error {
	host := s.host()
	host.SetLatency(time.Duration(s.random.IntN(200)) * time.Millisecond)
	s.later(func() { host.SetLatency(0) })
	return nil
}

func (s *soak) removeDomain(context.Context) error {
	host, number := s.host(), s.random.Uint32()
	if _, domains := host.Left(); len(domains) > 0 {
		uuid := domains[int(number)%len(domains)]
		s.damaged[uuid] = true
		host.RemoveDomain(uuid)
	}
	return nil
}

// deleteVolume deletes a volume of a machine or of an image, except ImageVolume, which nothing would restore.
func (s *soak) deleteVolume(ctx context.Context) error {
	host, number := s.host(), s.random.Uint32()
	volumes, _ := host.Left()
	volumes = slices.DeleteFunc(volumes, func(ref hypervisor.VolumeRef) bool { return ref == world.ImageVolume })
	if len(volumes) == 0 {
		return nil
	}
	ref := volumes[int(number)%len(volumes)]
	if uuid := ref.Name[:min(len(ref.Name), uuidLength)]; isUUID(uuid) {
		s.damaged[uuid] = true
	}
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	connection, err := host.Connect(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = connection.Close() }()
	_ = connection.DeleteVolume(ctx, ref) // a fault may affect this call
	return nil
}

func (s *soak) troubleAPI(context.Context) error {
	api.set(s.random.IntN(30), s.random.IntN(15), s.random.IntN(15))
	s.later(func() { api.set(0, 0, 0) })
	return nil
}

// resources are the resources whose events the managers' controllers need.
var resources = []string{"libvirtmachines", "libvirthosts", "libvirtclusters", "machines", "machinesets", "machinedeployments", "clusters"}

// lateCaches delays the events of one of the managers.
func (s *soak) lateCaches(context.Context) error {
	watches := []*world.LateWatches{late, lateForClusterAPI}[s.random.IntN(2)]
	watches.Hold(resources[s.random.IntN(len(resources))])
	s.later(watches.Release)
	return nil
}

func (s *soak) troubleImages(context.Context) error {
	s.images.behave(behaviours[s.random.IntN(len(behaviours))])
	return nil
}

// fillDisk fills the pool of a host for some time.
func (s *soak) fillDisk(ctx context.Context) error {
	host := s.host()
	fill := host.FillPool(world.ImageVolume.Pool)
	end := sync.OnceFunc(fill)
	s.full = append(s.full, end)
	s.later(end)
	return nil
}

// takeOver starts another manager while the older one continues for some time, or until it is killed.
func (s *soak) takeOver(context.Context) error {
	older, err := s.TakeOver()
	if err != nil {
		return err
	}
	end := sync.OnceValue(older)
	s.older = append(s.older, end)
	s.later(func() { _ = end() }) // called again at the next quiet point
	return nil
}

func (s *soak) kill(context.Context) error { return s.RestartProvider() }
