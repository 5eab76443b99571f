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

// Hosts are what was seen of hosts: a fleet.Fleet.
type Hosts interface {
	// Snapshot returns what was last seen of a host, and false when nobody looks at it.
	Snapshot(host string) (fleet.Snapshot, bool)
}

// Scheduler chooses hosts for LibvirtMachines, and counts in its Ledger what they take. The controllers share one. All
// machines have to pass its Handler.
type Scheduler struct {
	// Ledger counts what machines take.
	*Ledger

	// Client reads from the manager's cache.
	Client client.Reader

	// APIReader reads from the API server itself.
	APIReader client.Reader

	// Hosts are what was seen of the hosts.
	Hosts Hosts

	// HostsPatience is for how long machines without a host wait for hosts that are being connected to for
	// the first time, although others fit.
	HostsPatience time.Duration

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a host must have to get machines.
	// Every host may when it is empty.
	WatchFilterValue string

	places   places
	newHosts newHosts
	// full has until when hosts get no machines, by name: see SetFull.
	full sync.Map
	// choosing has the hosts that Choosing was called for, by name.
	choosing sync.Map
	// macs is locked while a machine is placed that asks for a MAC address.
	macs sync.Mutex

	lock sync.Mutex
	// claimed are machines that the ledger doesn't count, because only their spec says that they are on a host.
	claimed map[types.UID]*infrav1.LibvirtMachine
}

// Candidate is a machine that needs a host, or more of the host that it has.
type Candidate struct {
	// Infra is the machine. It isn't changed.
	Infra *infrav1.LibvirtMachine
	// Cluster is the one that it belongs to.
	Cluster *clusterv1.Cluster
	// FailureDomain that it must be in. Any when empty.
	FailureDomain string
}

// ErrNotAllowed says that the namespace of a machine may use none of the hosts in question.
var ErrNotAllowed = errors.New("the namespace may not use the hosts")

// LaterError says that a machine has to wait for hosts that may turn out to be better than those that have been seen.
type LaterError struct {
	// After is for how long.
	After time.Duration
}

// Error implements error.
func (e *LaterError) Error() string {
	return fmt.Sprintf("hosts are being connected to: try again after %s", e.After)
}

// Place chooses a host for a machine that has none, and reserves its room there. domain is the UUID that its domain
// is to have.
//
// The error may be ErrNotAllowed, a *LaterError, a *MACTakenError, or a *NoFitError, which all leave what is counted
// as it is.
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

// Claim places a machine on the host that its spec names, by the rules for machines without a host. Nothing happens
// when there is no such host that its namespace may use. The error may be a *MACTakenError or a *NoFitError.
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

// Grow reserves what the spec of a machine asks for more than it has on its host, as Ledger.Grow does. The error may be
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

// ReleaseUnlessWritten releases what is reserved for a machine when it is certain that what it is for hasn't been
// written, by the error of the write. A conflict alone doesn't say that: the answer to an earlier write may have been
// lost, and the cache not show it so far. The API server itself says what is written.
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

// MayUse says whether a namespace may use a host as things are now.
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

// fullFor is for how long a host that was found to be full gets no machines, unless one that is bound to it gets
// what it needs meanwhile. Those that are bound there look more often than that.
const fullFor = 30 * time.Minute

// SetFull says whether a host had no room for something that a machine needed there, although by what is counted
// there was: because of files of others, or images. It then gets no machines for a while.
func (s *Scheduler) SetFull(host string, full bool) {
	if full {
		s.full.Store(host, time.Now().Add(fullFor))
	} else {
		s.full.Delete(host)
	}
}

func (s *Scheduler) isFull(host string) bool {
	until, there := s.full.Load(host)
	return there && time.Now().Before(until.(time.Time))
}

// Choosing says whether no other machine is being given what it has to itself on a host, and that the caller's is now,
// until it calls end.
func (s *Scheduler) Choosing(host string) (end func(), begun bool) {
	_, other := s.choosing.LoadOrStore(host, true)
	return func() { s.choosing.Delete(host) }, !other
}

// reserve reserves room on the best of some hosts. Of machines that want the same MAC address at once, the first that
// has a reservation gets it: those whose addresses may clash are placed one after the other.
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

// hostSet are the hosts that a machine may be placed on.
type hostSet struct {
	// allowed are those that its namespace may use, and unlisted says that there are others.
	allowed  []Host
	unlisted bool
	// snapshots are what was last seen of all hosts, by name.
	snapshots map[string]fleet.Snapshot
}

func (h *hostSet) find(name string) int {
	return slices.IndexFunc(h.allowed, func(host Host) bool { return host.Name == name })
}
