package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/access"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
)

// Scheduler chooses hosts for LibvirtMachines and records their resources in its Ledger. All controllers share one.
// All events of machines must pass its Handler.
type Scheduler struct {
	// Ledger has the resources of machines.
	*Ledger

	// Client reads from the manager's cache.
	Client client.Reader

	// APIReader reads from the API server.
	APIReader client.Reader

	// Hosts has the snapshots of hosts.
	Hosts fleet.Snapshots

	// HostsPatience is how long machines without a host wait for the first connections to hosts, although others fit.
	HostsPatience time.Duration

	// WatchFilterValue is the required value of the label cluster.x-k8s.io/watch-filter of hosts, or empty for all
	// hosts.
	WatchFilterValue string

	places   places
	newHosts newHosts
	// full has the time until which a host gets no machines, by name: see SetFull.
	full sync.Map
	// choosing has the hosts for which Choosing was called, by name.
	choosing sync.Map
	// macs is locked while a machine with a MAC address is placed.
	macs sync.Mutex

	lock sync.Mutex
	// claimed has machines that the ledger doesn't count, because only their spec names a host.
	claimed map[types.UID]*infrav1.LibvirtMachine
}

// Candidate is a machine that needs a host, or more room on its host.
type Candidate struct {
	// Infra is the machine, which isn't changed.
	Infra *infrav1.LibvirtMachine
	// Cluster is the Cluster of the machine.
	Cluster *clusterv1.Cluster
	// FailureDomain is the required failure domain, or empty for any.
	FailureDomain string
}

// ErrNotAllowed says that the namespace of a machine may not use the hosts.
var ErrNotAllowed = errors.New("the namespace may not use the hosts")

// LaterError says that a machine must wait for connecting hosts, which may be a better choice.
type LaterError struct {
	// After is the time to wait.
	After time.Duration
}

// Error implements error.
func (e *LaterError) Error() string {
	return fmt.Sprintf("hosts are being connected to: try again after %s", e.After)
}

// Place chooses a host for a machine without one, and reserves room there. domain is the UUID for its domain.
//
// The error may be ErrNotAllowed, a *LaterError, a *MACTakenError, or a *NoFitError. None of them changes the ledger.
func (s *Scheduler) Place(ctx context.Context, candidate Candidate) (host, domain string, err error) {
	hosts, err := s.hostsFor(ctx, candidate)
	if err != nil {
		return "", "", err
	}
	if len(hosts.allowed) == 0 && hosts.unlisted {
		return "", "", ErrNotAllowed
	}
	request := candidate.request()
	request.Machine.Domain = string(uuid.NewUUID())
	if wait := s.newHosts.wait(Unseen(request, hosts.allowed), s.HostsPatience, time.Now()); wait > 0 {
		return "", "", &LaterError{After: wait}
	}
	host, err = s.reserve(ctx, candidate.Infra, request, hosts)
	if noFit := (*NoFitError)(nil); errors.As(err, &noFit) {
		noFit.Unlisted = hosts.unlisted
	}
	return host, request.Machine.Domain, err
}

// Claim places a machine on the host in its spec, by the rules for machines without a host. It does nothing if the
// namespace may not use the host. The error may be a *MACTakenError or a *NoFitError.
func (s *Scheduler) Claim(ctx context.Context, candidate Candidate) error {
	hosts, err := s.hostsFor(ctx, candidate)
	if err != nil {
		return err
	}
	at := hosts.find(candidate.Infra.Spec.HostName)
	if at < 0 {
		return nil
	}
	hosts.allowed = hosts.allowed[at : at+1]
	if _, err := s.reserve(ctx, candidate.Infra, candidate.request(), hosts); err != nil {
		return err
	}
	s.Observe(candidate.Infra.DeepCopy())
	return nil
}

// Grow reserves the additional resources in the spec of a machine, as Ledger.Grow does. The error may be
// ErrNotAllowed, or a *NoFitError about the one host.
func (s *Scheduler) Grow(ctx context.Context, candidate Candidate) error {
	hosts, err := s.hostsFor(ctx, candidate)
	if err != nil {
		return err
	}
	at := hosts.find(candidate.Infra.Spec.HostName)
	if at < 0 {
		return ErrNotAllowed
	}
	return s.Ledger.Grow(candidate.Infra.UID, Needs(&candidate.Infra.Spec), hosts.allowed[at])
}

// ReleaseUnlessWritten drops the reservations of a machine if the error shows that the write certainly failed. After
// a conflict it reads the machine from the API server: an earlier write may have succeeded without an answer.
func (s *Scheduler) ReleaseUnlessWritten(ctx context.Context, infra *infrav1.LibvirtMachine, err error, isWritten func(*infrav1.LibvirtMachine) bool) {
	switch {
	case apierrors.IsConflict(err):
		now := &infrav1.LibvirtMachine{}
		err := s.APIReader.Get(ctx, client.ObjectKeyFromObject(infra), now)
		if client.IgnoreNotFound(err) != nil || err == nil && now.UID == infra.UID && isWritten(now) {
			return
		}
	case !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
		return
	}
	s.Release(infra.UID)
}

// MayUse reports whether a namespace may use a host.
func (s *Scheduler) MayUse(ctx context.Context, namespace string, host *infrav1.LibvirtHost) (bool, error) {
	identities, object, err := s.identities(ctx, namespace)
	return err == nil && access.Host(host, identities, object), err
}

func (s *Scheduler) identities(ctx context.Context, namespace string) ([]infrav1.LibvirtClusterIdentity, *corev1.Namespace, error) {
	list, object := &infrav1.LibvirtClusterIdentityList{}, &corev1.Namespace{}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: namespace}, object); err != nil {
		return nil, nil, fmt.Errorf("reading the namespace: %w", err)
	}
	if err := s.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing LibvirtClusterIdentities: %w", err)
	}
	return list.Items, object, nil
}

// fullFor is how long a full host gets no machines. A machine on the host that gets its resources ends this earlier.
const fullFor = 30 * time.Minute

// SetFull records whether a machine on a host ran out of room although enough should be free, for example because of
// other files. A full host gets no machines for a while.
func (s *Scheduler) SetFull(host string, full bool) {
	if full {
		s.full.Store(host, time.Now().Add(fullFor))
	} else {
		s.full.Delete(host)
	}
}

func (s *Scheduler) isFull(host string) bool {
	until, exists := s.full.Load(host)
	return exists && time.Now().Before(until.(time.Time))
}

// Choosing locks the choice of exclusive CPUs and devices on a host. If begun is true, the caller must call end.
func (s *Scheduler) Choosing(host string) (end func(), begun bool) {
	_, other := s.choosing.LoadOrStore(host, true)
	return func() { s.choosing.Delete(host) }, !other
}

// reserve reserves room on the best host. Machines whose MAC addresses may clash are placed one after the other, so
// that the first one gets the address.
func (s *Scheduler) reserve(ctx context.Context, infra *infrav1.LibvirtMachine, request Request, hosts *hostSet) (string, error) {
	if wanted := wantedMACs(infra); len(wanted) > 0 {
		s.macs.Lock()
		defer s.macs.Unlock()
		if err := s.checkMACs(ctx, infra, wanted, hosts.snapshots); err != nil {
			return "", err
		}
	}
	return s.Ledger.Place(request, hosts.allowed)
}

func (c *Candidate) request() Request {
	machine := machineOf(c.Infra)
	machine.Cluster.Name = c.Cluster.Name
	return NewRequest(machine, &c.Infra.Spec, c.FailureDomain)
}

// hostSet has the hosts for a machine.
type hostSet struct {
	// allowed has the hosts that its namespace may use, and unlisted says that there are others.
	allowed  []Host
	unlisted bool
	// snapshots has the snapshots of all hosts, by name.
	snapshots map[string]fleet.Snapshot
}

func (h *hostSet) find(name string) int {
	return slices.IndexFunc(h.allowed, func(host Host) bool { return host.Name == name })
}
