package libvirtmachinepool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/collections"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// replicas returns the replicas of the MachinePool.
func (s *scope) replicas() int { return int(ptr.Deref(s.owner.Spec.Replicas, 1)) }

// isManagedElsewhere reports whether an external autoscaler sets the number of machines. The number of first
// machines is that of the MachinePool: the autoscaler needs machines to scale.
func (s *scope) isManagedElsewhere() bool {
	return annotations.ReplicasManagedByExternalAutoscaler(s.owner) && ptr.Deref(s.infra.Status.Initialization.Provisioned, false)
}

// desired returns the desired number of machines. With an external autoscaler it is the actual number: deleted
// machines aren't replaced. Machines that a rollout adds, or that replace unhealthy ones, don't count.
func (s *scope) desired(seen *members) int {
	if !s.isManagedElsewhere() {
		return s.replicas()
	}
	alive := count(seen.all, func(m member) bool { return !m.deleting })
	if count(seen.all, func(m member) bool { return !m.deleting && (m.outdated || m.unhealthy) }) > 0 {
		return min(alive, s.replicas())
	}
	return alive
}

// surfaceReplicas writes the number of machines into the MachinePool, if an external autoscaler sets it ("Externally
// Managed Autoscaler" of Cluster API's page about MachinePools).
func (s *scope) surfaceReplicas(ctx context.Context, seen *members) (bool, error) {
	desired := s.desired(seen)
	if desired == s.replicas() {
		return false, nil
	}
	before := s.owner.DeepCopy()
	s.owner.Spec.Replicas = ptr.To(int32(desired)) //nolint:gosec // at most 10000
	return true, outcome.Wrap(s.Client.Patch(ctx, s.owner, outcome.Over(before)), "writing spec.replicas of the MachinePool")
}

// decide returns the next changes.
func (s *scope) decide(seen *members) plan {
	desired := s.desired(seen)
	b := boundsOf(s.infra.Spec.Strategy, desired)
	if s.isManagedElsewhere() {
		// A deletion by a rollout would look like a deletion by the autoscaler.
		b = bounds{surge: max(1, b.surge)}
	}
	p := makePlan(desired, b, seen.planned())
	if missing := s.inPlaceOfUnhealthy(seen, desired); missing > 0 {
		p = plan{creates: missing}
	}
	if reason, _ := s.waitsFor(); reason != "" {
		p.creates = 0
	}
	return p
}

// inPlaceOfUnhealthy returns the number of machines to create before unhealthy ones are deleted. This is needed with an
// external autoscaler only: spec.replicas follows scaling and not health checks ("Externally Managed Autoscaler" of
// Cluster API's page about MachinePools), and a deleted unhealthy machine would look like scaling. Otherwise
// spec.replicas shows how many are missing.
func (s *scope) inPlaceOfUnhealthy(seen *members, desired int) int {
	if !s.isManagedElsewhere() {
		return 0
	}
	unhealthy := count(seen.all, func(m member) bool { return !m.deleting && m.unhealthy })
	healthy := count(seen.all, func(m member) bool { return !m.deleting && !m.unhealthy })
	return min(unhealthy, desired-healthy)
}

// waitsFor returns the reason if no machine can be created now.
func (s *scope) waitsFor() (reason, message string) {
	switch {
	case !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		return infrav1.WaitingForClusterInfrastructureReason,
			"Waiting for status.initialization.infrastructureProvisioned of the Cluster to be true"
	case ptr.Deref(s.owner.Spec.Template.Spec.Bootstrap.DataSecretName, "") == "":
		return infrav1.WaitingForBootstrapDataReason, "Waiting for spec.template.spec.bootstrap.dataSecretName of the MachinePool to be set"
	}
	return "", ""
}

// readAgain reads the pool and its machines from the API server.
func (s *scope) readAgain(ctx context.Context) (*members, error) {
	now, err := s.read(ctx, s.APIReader, client.ObjectKeyFromObject(s.infra))
	switch {
	case err != nil:
		return nil, err
	case now == nil || now.owner == nil || now.cluster == nil || now.infra.UID != s.infra.UID || !now.infra.DeletionTimestamp.IsZero() ||
		annotations.IsPaused(now.cluster, now.infra):
		return nil, errLater
	}
	*s = *now
	return s.machines(ctx, s.APIReader)
}

// scale creates and deletes machines. The API server has all state, so that another manager can continue after this
// one was killed.
func (s *scope) scale(ctx context.Context, seen *members) error {
	for _, machine := range seen.dangling {
		if err := s.deleteDangling(ctx, machine); err != nil {
			return err
		}
	}
	todo := s.decide(seen)
	// The remaining changes are planned when the cache has these.
	todo.creates = min(todo.creates, changesAtOnce)
	todo.deletes = todo.deletes[:min(len(todo.deletes), changesAtOnce)]
	if len(todo.deletes) > 0 {
		s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, "DeletingMachines", "Scale", "Deleting %s", outcome.Names(todo.deletes))
	}
	for _, name := range todo.deletes {
		if err := s.deleteMember(ctx, seen.byName(name)); err != nil {
			return err
		}
	}
	if todo.creates > 0 {
		return s.create(ctx, seen, todo.creates)
	}
	return nil
}

// deleteMember deletes the Machine of a machine, so that Cluster API drains the node first, or the LibvirtMachine if
// there is no Machine.
func (s *scope) deleteMember(ctx context.Context, m member) error {
	object := m.object()
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := s.Client.Delete(ctx, object, client.Preconditions{UID: ptr.To(object.GetUID())})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	ctrl.LoggerFrom(ctx).Info("Deleted a machine of the pool", "name", m.name, "throughItsMachine", m.machine != nil, "outdated", m.outdated, "ready", m.ready, "unhealthy", m.unhealthy)
	return nil
}

// deleteDangling deletes a Machine of the pool whose LibvirtMachine a user has deleted: Cluster API leaves that to the
// provider.
func (s *scope) deleteDangling(ctx context.Context, machine *clusterv1.Machine) error {
	if s.owner == nil || !machine.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(machine, s.owner) {
		return nil
	}
	// It may exist without the labels by which it is listed.
	key := client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name}
	if err := s.APIReader.Get(ctx, key, &infrav1.LibvirtMachine{}); !apierrors.IsNotFound(err) {
		return outcome.Wrap(err, "reading the LibvirtMachine of Machine "+machine.Name)
	}
	return s.deleteMember(ctx, member{machine: machine, planned: planned{name: key.Name, unhealthy: collections.IsUnhealthyAndOwnerRemediated(machine)}})
}

// create creates machines. It reserves the numbers in their names first, with optimistic locking: a concurrent
// manager gets a conflict.
func (s *scope) create(ctx context.Context, seen *members, machines int) error {
	last := s.lastNumber(seen)
	before := s.infra.DeepCopy()
	s.infra.Annotations = merged(s.infra.Annotations, map[string]string{infrav1.LastMachineNumberAnnotation: strconv.Itoa(last + machines)})
	if err := s.Client.Patch(ctx, s.infra, outcome.Over(before)); err != nil {
		return fmt.Errorf("reserving names for machines: %w", err)
	}
	domains := map[string]int{}
	for _, m := range seen.all {
		if !m.deleting {
			domains[m.infra.Annotations[infrav1.FailureDomainAnnotation]]++
		}
	}
	var created []string
	defer func() {
		if len(created) > 0 {
			s.recorder.Eventf(s.infra, nil, corev1.EventTypeNormal, "CreatingMachines", "Scale", "Creating %s", outcome.Names(created))
		}
	}()
	for number := last + 1; number <= last+machines; number++ {
		name := machineName(s.infra.Name, number)
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.infra.Namespace, Name: name}, &clusterv1.Machine{}); !apierrors.IsNotFound(err) {
			if err != nil {
				return fmt.Errorf("reading Machine %s: %w", name, err)
			}
			return errLater // a Machine of another owner: the next number may be free
		}
		domain := share(s.owner.Spec.FailureDomains, domains)
		domains[domain]++
		err := s.Client.Create(ctx, s.desiredMachine(name, domain))
		if apierrors.IsAlreadyExists(err) {
			return errLater
		}
		if err != nil {
			return fmt.Errorf("creating LibvirtMachine %s: %w", name, err)
		}
		created = append(created, name)
	}
	ctrl.LoggerFrom(ctx).Info("Created machines of the pool", "names", created)
	return nil
}

// lastNumber returns the highest number in the name of a current or former machine of the pool.
func (s *scope) lastNumber(seen *members) int {
	last, _ := strconv.Atoi(s.infra.Annotations[infrav1.LastMachineNumberAnnotation]) // 0 if the annotation is invalid
	for _, m := range seen.all {
		digits, is := strings.CutPrefix(m.infra.Name, namePrefix(s.infra.Name))
		if number, err := strconv.Atoi(digits); is && err == nil {
			last = max(last, number)
		}
	}
	return max(last, 0)
}

// maxPrefix is the maximum length of a machine's name before its number: names of nodes and hosts have at most 63
// characters.
const maxPrefix = 54

func machineName(pool string, number int) string { return namePrefix(pool) + strconv.Itoa(number) }

// namePrefix returns the name of the pool, shortened with a hash if it is too long.
func namePrefix(pool string) string {
	if len(pool) < maxPrefix {
		return pool + "-"
	}
	sum := sha256.Sum256([]byte(pool))
	return strings.TrimRight(pool[:maxPrefix-10], "-.") + "-" + hex.EncodeToString(sum[:4]) + "-"
}

const (
	// smallPool is the maximum size of a pool that is reconciled after each change.
	smallPool = 100
	// pauseForEach is the pause between two reconciles of a larger pool, per machine: 2 s for 4000 machines. A
	// reconcile reads all machines, so the cost of a pool would otherwise grow with the square of its size.
	pauseForEach = 500 * time.Microsecond
	// changesAtOnce limits the created or deleted machines of a reconcile, so that it ends in time.
	changesAtOnce = 200
)

// pace has the time of the last reconcile of each pool. The zero value is ready to use.
type pace struct{ sync.Map }

// wait returns how long the next reconcile of a pool must wait.
func (p *pace) wait(pool types.NamespacedName, machines int, now time.Time) time.Duration {
	last, known := p.Load(pool)
	if !known || machines <= smallPool {
		return 0
	}
	return max(last.(time.Time).Add(time.Duration(machines)*pauseForEach).Sub(now), 0)
}
