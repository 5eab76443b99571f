package orphans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// page is the number of LibvirtMachines in one answer of the API server.
const page = 500

// visit is the state of one reconcile.
type visit struct {
	*Reconciler
	host       *infrav1.LibvirtHost
	connection hypervisor.Hypervisor
	// self is the ID of this management cluster.
	self string
	// pools are the active storage pools.
	pools []string
	// kept has the age of each orphan, and the reason why it still exists.
	kept map[string]keptOrphan
}

type keptOrphan struct {
	since   metav1.Time
	because string
}

func activePools(snapshot fleet.Snapshot) []string {
	var pools []string
	for name, pool := range snapshot.Pools {
		if pool.Err == nil && pool.Active {
			pools = append(pools, name)
		}
	}
	slices.Sort(pools)
	return pools
}

// seenIn returns the contents of a snapshot.
func seenIn(snapshot fleet.Snapshot) contents {
	on := contents{domains: snapshot.Domains, volumes: map[hypervisor.VolumeRef]hypervisor.Volume{}}
	for _, pool := range snapshot.Pools {
		for _, volume := range pool.Volumes {
			on.volumes[volume.VolumeRef] = volume
		}
	}
	return on
}

// read reads the contents from the host: snapshots are up to a minute old.
func (v *visit) read(ctx context.Context) (contents, error) {
	on := contents{domains: map[string]hypervisor.Domain{}, volumes: map[hypervisor.VolumeRef]hypervisor.Volume{}}
	domains, err := v.connection.ListDomains(ctx)
	if err != nil {
		return on, err
	}
	for _, domain := range domains {
		on.domains[domain.UUID] = domain
	}
	for _, pool := range v.pools {
		volumes, err := v.connection.PoolVolumes(ctx, pool)
		if err != nil {
			return on, err
		}
		for _, volume := range volumes {
			on.volumes[volume.VolumeRef] = volume
		}
	}
	return on, nil
}

// machines lists the LibvirtMachines of all namespaces from the API server.
func (v *visit) machines(ctx context.Context) ([]infrav1.LibvirtMachine, error) {
	var all []infrav1.LibvirtMachine
	list := &infrav1.LibvirtMachineList{}
	for {
		if err := v.APIReader.List(ctx, list, client.Limit(page), client.Continue(list.Continue)); err != nil {
			return nil, fmt.Errorf("listing all LibvirtMachines from the API server: %w", err)
		}
		all = append(all, list.Items...)
		if list.Continue == "" {
			return all, nil
		}
	}
}

// cluster reads the Cluster of a domain from the API server, and returns nil if it doesn't exist. The names in the
// metadata of a domain may be invalid.
func (v *visit) cluster(ctx context.Context, owner *hypervisor.Owner) (*clusterv1.Cluster, error) {
	if len(validation.IsDNS1123Label(owner.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(owner.Cluster)) > 0 {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	err := v.APIReader.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Cluster}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cluster, outcome.Wrap(err, fmt.Sprintf("reading Cluster %s/%s from the API server", owner.Namespace, owner.Cluster))
}

// confirmOrphans finds the orphans with the lists of the host and then of the API server: a machine exists before its
// domain and volumes, and longer. A paused Cluster has no orphans, because its machines may be moving.
func (v *visit) confirmOrphans(ctx context.Context) ([]orphan, error) {
	on, err := v.read(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := v.machines(ctx)
	if err != nil {
		return nil, err
	}
	var orphans []orphan
	for _, o := range find(on, knownOf(machines)) {
		if o.domain != nil {
			cluster, err := v.cluster(ctx, o.domain.Owner)
			if err != nil {
				return nil, err
			}
			if cluster != nil && annotations.IsPaused(cluster, cluster) {
				continue
			}
		}
		orphans = append(orphans, o)
	}
	return orphans, nil
}

// collect deletes the orphans that may be deleted, and returns the others. v.kept has the reasons.
func (v *visit) collect(ctx context.Context, orphans []orphan) ([]orphan, error) {
	v.kept = map[string]keptOrphan{}
	since := map[string]metav1.Time{}
	for _, before := range v.host.Status.Orphans {
		since[before.UUID] = before.Since
	}
	var remaining []orphan
	var errs []error
	for _, o := range orphans {
		kept := keptOrphan{since: since[o.uuid]}
		if kept.since.IsZero() {
			kept.since = metav1.NewTime(v.time().Truncate(1e9)) // with the precision of the API server
		}
		kept.because = v.tooSoon(kept.since)
		if kept.because == "" {
			var err error
			if kept.because, err = v.remove(ctx, o.uuid); err != nil {
				kept.because = "deleting it failed: " + err.Error()
				errs = append(errs, err)
			}
		}
		if kept.because == "" {
			v.recorder.Eventf(v.host, nil, corev1.EventTypeNormal, "OrphanDeleted", "DeleteOrphan", "Deleted the %s", o.String())
			continue
		}
		v.kept[o.uuid] = kept
		remaining = append(remaining, o)
	}
	return remaining, errors.Join(errs...)
}

// tooSoon returns the reason if an orphan of that age isn't deleted.
func (v *visit) tooSoon(since metav1.Time) string {
	if !v.Options.Collect {
		return "the manager runs without --collect-orphans"
	}
	if due := since.Add(cmp.Or(v.Options.MinAge, 24*time.Hour)); v.time().Before(due) {
		return "it isn't deleted before " + due.UTC().Format("2006-01-02T15:04:05Z")
	}
	return ""
}

// remove stops the domain, deletes the volumes, and undefines the domain last, because it lists the remaining disks.
// Before each step it checks again whether it may, and returns the reason if not.
func (v *visit) remove(ctx context.Context, uuid string) (because string, err error) {
	done := map[string]bool{}
	for {
		o, because, err := v.mayDelete(ctx, uuid)
		if err != nil || because != "" {
			return because, err
		}
		if o == nil {
			break
		}
		var step string
		var do func() error
		switch {
		case o.domain != nil && o.domain.State.Active():
			step, do = "stopping the domain "+o.domain.Name, func() error { return v.connection.StopDomain(ctx, uuid) }
		case len(o.volumes) > 0:
			step, do = "deleting the volume "+o.volumes[0].String(), func() error { return v.connection.DeleteVolume(ctx, o.volumes[0]) }
		default:
			step, do = "undefining the domain "+o.domain.Name, func() error { return v.undefine(ctx, o.domain) }
		}
		if done[step] {
			return "", fmt.Errorf("%s had no effect", step)
		}
		done[step] = true
		ctrl.LoggerFrom(ctx).Info("Deleting an orphan", "LibvirtHost", v.host.Name, "uuid", uuid, "step", step)
		if err := do(); hypervisor.IgnoreNotFound(err) != nil {
			return "", err
		}
	}
	if err := v.Hosts.Refresh(ctx, v.host.Name, uuid); err != nil {
		ctrl.LoggerFrom(ctx).Info("Reading the changed domain failed: its snapshot may be old", "err", err)
	}
	return "", nil
}

// undefine deletes a domain with its console log. If the host refuses to delete the log, the log stays.
func (v *visit) undefine(ctx context.Context, domain *hypervisor.Domain) error {
	if domain.ConsoleLog != "" {
		err := v.connection.RemoveConsoleLog(ctx, domain.UUID)
		if hypervisor.Uncertain(err) || errors.Is(err, hypervisor.ErrBusy) {
			return err
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "The file stays on the host", "LibvirtHost", v.host.Name, "file", domain.ConsoleLog)
		}
	}
	return v.connection.UndefineDomain(ctx, domain.UUID)
}

// mayDelete reads an orphan from the host, and checks with the API server whether it may be deleted. It returns the
// reason if not, and nil if the orphan doesn't exist any more.
func (v *visit) mayDelete(ctx context.Context, uuid string) (*orphan, string, error) {
	host := &infrav1.LibvirtHost{} // stays empty if it is deleted
	if err := v.APIReader.Get(ctx, client.ObjectKeyFromObject(v.host), host); client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("reading the LibvirtHost from the API server: %w", err)
	}
	if host.UID != v.host.UID || !host.DeletionTimestamp.IsZero() || annotations.HasPaused(host) || host.Spec.URI != v.host.Spec.URI {
		return nil, "the LibvirtHost is paused, is being deleted or has changed", nil
	}
	on, err := v.read(ctx)
	if err != nil {
		return nil, "", err
	}
	if own, others := v.markers(on); len(others) > 0 {
		return nil, fmt.Sprintf("another management cluster has or had machines on the host: "+
			"if it no longer exists, delete the volumes %s", strings.Join(others, ", ")), nil
	} else if !own {
		return nil, "the marker of this management cluster isn't in all storage pools of the host", nil
	}
	machines, err := v.machines(ctx)
	if err != nil {
		return nil, "", err
	}
	all := find(on, knownOf(machines))
	at := slices.IndexFunc(all, func(o orphan) bool { return o.uuid == uuid })
	if at < 0 {
		if knownOf(machines)[uuid] {
			return nil, "its LibvirtMachine exists again", nil
		}
		return nil, "", nil
	}
	o := &all[at]
	if used := o.usedBy(on); used != "" {
		return nil, used, nil
	}
	because, err := v.belongsElsewhere(ctx, o, machines)
	return o, because, err
}

// belongsElsewhere returns the reason if a domain may belong to an existing machine.
func (v *visit) belongsElsewhere(ctx context.Context, o *orphan, machines []infrav1.LibvirtMachine) (string, error) {
	if o.domain == nil {
		return "", nil
	}
	owner := o.domain.Owner
	for i := range machines {
		if machines[i].Namespace == owner.Namespace && machines[i].Name == owner.Name {
			return fmt.Sprintf("a LibvirtMachine %s/%s exists, with another provider ID: it may have been restored from a backup", owner.Namespace, owner.Name), nil
		}
	}
	cluster, err := v.cluster(ctx, owner)
	switch {
	case err != nil:
		return "", err
	case cluster == nil:
		return fmt.Sprintf("its Cluster %s/%s isn't in this management cluster: it may have been moved", owner.Namespace, owner.Cluster), nil
	case annotations.IsPaused(cluster, cluster):
		return fmt.Sprintf("its Cluster %s/%s is paused", owner.Namespace, owner.Cluster), nil
	}
	// Disks in pools that aren't in the host's spec any more can't be listed, and must not be left behind.
	var elsewhere []string
	for _, disk := range o.domain.Disks {
		if strings.HasPrefix(disk.Name, o.uuid+"-") && !slices.Contains(v.pools, disk.Pool) {
			elsewhere = append(elsewhere, disk.String())
		}
	}
	if len(elsewhere) > 0 {
		return fmt.Sprintf("it has disks in storage pools that spec.storagePools doesn't name or that aren't active: %s",
			strings.Join(elsewhere, ", ")), nil
	}
	return "", nil
}
