package libvirtcluster

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels/format"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/claims"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// maxBalancerName is the maximum length of the name of a load balancer, which is its guest's host name.
const maxBalancerName = 63

func hasBalancer(infra *infrav1.LibvirtCluster) bool {
	return infra.Spec.ControlPlaneLoadBalancer.Type == infrav1.LoadBalancerHAProxy && infra.Spec.ControlPlaneLoadBalancer.HAProxy != nil
}

// balancerName returns the name of the LibvirtMachine with HAProxy. A fixed name ensures that there is only one.
func balancerName(infra *infrav1.LibvirtCluster) string {
	const suffix = "-lb"
	if len(infra.Name)+len(suffix) <= maxBalancerName && !strings.Contains(infra.Name, ".") {
		return infra.Name + suffix
	}
	sum := sha256.Sum256([]byte(infra.Name))
	tail := "-" + hex.EncodeToString(sum[:4]) + suffix
	name := strings.ReplaceAll(infra.Name, ".", "-") // a host name has no dot
	return strings.TrimRight(name[:min(len(name), maxBalancerName-len(tail))], "-") + tail
}

// isBalancerOf reports whether a machine is the load balancer of a LibvirtCluster. If a user has removed the owner
// reference, the name, the label and the annotation decide.
func isBalancerOf(machine *infrav1.LibvirtMachine, infra *infrav1.LibvirtCluster) bool {
	label, labelled := machine.Labels[infrav1.LoadBalancerLabel]
	if metav1.GetControllerOf(machine) != nil {
		return labelled && metav1.IsControlledBy(machine, infra)
	}
	_, configured := machine.Annotations[infrav1.LoadBalancerConfigurationAnnotation]
	return machine.Name == balancerName(infra) && label == format.MustFormatValue(infra.Name) && configured
}

// readBalancer returns the machine with the load balancer's name, or nil.
func (r *Reconciler) readBalancer(ctx context.Context, infra *infrav1.LibvirtCluster) (*infrav1.LibvirtMachine, error) {
	machine := &infrav1.LibvirtMachine{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: infra.Namespace, Name: balancerName(infra)}, machine)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return machine, outcome.Wrap(err, "reading the load balancer")
}

// takeBalancersEndpoint writes the load balancer's address from DHCP as the control plane endpoint. Before that it
// writes the MAC address for all load balancers of the cluster. It reports whether it has written.
func (r *Reconciler) takeBalancersEndpoint(ctx context.Context, infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) (bool, error) {
	if !hasBalancer(infra) || !isByDHCP(infra, cluster) {
		return false, nil
	}
	if infra.Annotations[infrav1.LoadBalancerMACAddressAnnotation] == "" {
		return true, r.chooseMAC(ctx, infra)
	}
	if infra.Spec.ControlPlaneEndpoint.Host != "" {
		return false, nil
	}
	machine, err := r.readBalancer(ctx, infra)
	if err != nil || machine == nil || !isBalancerOf(machine, infra) || !machine.DeletionTimestamp.IsZero() {
		return false, err
	}
	address := addressOf(machine)
	if !address.IsValid() {
		return false, nil
	}
	endpoint := clusterv1.APIEndpoint{Host: address.String(), Port: endpointPort(infra, cluster)}
	return true, r.writeEndpoint(ctx, infra, endpoint, machine, "TakeAddress", "%s is the address of LibvirtMachine %s from DHCP", endpoint.String(), machine.Name)
}

// isByDHCP reports whether the endpoint is the load balancer's address from DHCP. This is so if no endpoint or pool was
// set before the load balancer was created.
func isByDHCP(infra *infrav1.LibvirtCluster, cluster *clusterv1.Cluster) bool {
	if _, chosen := infra.Annotations[infrav1.LoadBalancerMACAddressAnnotation]; chosen {
		return true
	}
	return infra.Spec.ControlPlaneEndpoint.Host == "" && cluster.Spec.ControlPlaneEndpoint.Host == "" &&
		infra.Spec.ControlPlaneLoadBalancer.AddressFromPool == nil
}

// reconcileBalancer creates, replaces and configures the load balancer. If the load balancer isn't ready, s.balancer
// has its condition.
func (r *Reconciler) reconcileBalancer(ctx context.Context, s *scope) error {
	if !hasBalancer(s.infra) {
		return nil
	}
	machine, err := r.readBalancer(ctx, s.infra)
	switch {
	case err != nil:
	case machine == nil:
		err = r.createBalancer(ctx, s)
	case !isBalancerOf(machine, s.infra):
		s.noBalancer(infrav1.LoadBalancerNameTakenReason, "LibvirtMachine %s has the load balancer's name and isn't this cluster's load balancer: delete it", machine.Name)
	case !machine.DeletionTimestamp.IsZero():
		s.noBalancer(infrav1.LoadBalancerBeingReplacedReason, "LibvirtMachine %s is being deleted and is created again afterwards. %s",
			machine.Name, conditions.GetMessage(machine, infrav1.ReadyCondition))
	default:
		err = r.keepBalancer(ctx, s, machine)
	}
	if err != nil {
		s.balancer = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: infrav1.InternalErrorReason, Message: err.Error()}
	}
	return err
}

func (s *scope) noBalancer(reason, message string, values ...any) {
	s.balancer = &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: strings.TrimSpace(fmt.Sprintf(message, values...))}
}

// keepBalancer reconciles an existing load balancer.
func (r *Reconciler) keepBalancer(ctx context.Context, s *scope, machine *infrav1.LibvirtMachine) error {
	if !metav1.IsControlledBy(machine, s.infra) {
		before := machine.DeepCopy()
		if err := controllerutil.SetControllerReference(s.infra, machine, r.Client.Scheme()); err != nil {
			return fmt.Errorf("setting the owner of the load balancer: %w", err)
		}
		if err := r.Client.Patch(ctx, machine, outcome.Over(before)); err != nil {
			return fmt.Errorf("setting the owner of the load balancer: %w", err)
		}
	}
	why, err := r.whyReplace(ctx, s, machine)
	if err != nil {
		return err
	}
	if why != "" {
		s.noBalancer(infrav1.LoadBalancerBeingReplacedReason, "LibvirtMachine %s is being replaced: %s", machine.Name, why)
		r.recorder.Eventf(s.infra, machine, corev1.EventTypeWarning, infrav1.LoadBalancerBeingReplacedReason, "Replace", "Replacing LibvirtMachine %s: %s", machine.Name, why)
		err := r.Client.Delete(ctx, machine, client.Preconditions{UID: &machine.UID})
		return outcome.Wrap(client.IgnoreNotFound(err), "deleting the load balancer, to replace it")
	}
	if err := r.configureBalancer(ctx, s, machine); err != nil {
		return err
	}
	endpoint, address := s.infra.Spec.ControlPlaneEndpoint.Host, addressOf(machine)
	ready := conditions.Get(machine, infrav1.ReadyCondition)
	switch {
	case ready == nil || !ptr.Deref(machine.Status.Initialization.Provisioned, false):
		s.noBalancer(infrav1.LoadBalancerNotRunningReason, "Waiting for LibvirtMachine %s. %s", machine.Name, ptr.Deref(ready, metav1.Condition{}).Message)
	case ready.Status != metav1.ConditionTrue:
		s.noBalancer(infrav1.LoadBalancerNotRunningReason, "LibvirtMachine %s isn't Ready. %s", machine.Name, ready.Message)
		s.balancer.Status = ready.Status
	case isByDHCP(s.infra, s.cluster) && endpoint != "" && address.String() != endpoint:
		s.noBalancer(infrav1.LoadBalancerAddressChangedReason,
			"DHCP gave LibvirtMachine %s the address %s, but the endpoint %s can't be changed: let DHCP give %s to the MAC address %s",
			machine.Name, address, endpoint, endpoint, s.infra.Annotations[infrav1.LoadBalancerMACAddressAnnotation])
	}
	return nil
}

// whyReplace returns the reason if a load balancer must be replaced: its domain is missing, or its host is being
// evacuated or deleted and another host is Ready. A stopped domain is started again, and the cluster waits for an
// unreachable host.
func (r *Reconciler) whyReplace(ctx context.Context, s *scope, machine *infrav1.LibvirtMachine) (string, error) {
	if ptr.Deref(machine.Status.Initialization.Provisioned, false) && machine.Status.InstanceState == infrav1.InstanceNotFound {
		return "its domain is missing", nil
	}
	if machine.Spec.HostName == "" || s.hosts == nil || len(s.hosts.ready) == 0 {
		return "", nil
	}
	host := &infrav1.LibvirtHost{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: machine.Spec.HostName}, host)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil // the machine can't be deleted without its host
	case err != nil:
		return "", fmt.Errorf("reading LibvirtHost %s of the load balancer: %w", machine.Spec.HostName, err)
	case !host.DeletionTimestamp.IsZero():
		return fmt.Sprintf("host %s is being deleted", host.Name), nil
	case host.Spec.Maintenance != nil && host.Spec.Maintenance.Mode == infrav1.MaintenanceEvacuate:
		return fmt.Sprintf("host %s is being evacuated", host.Name), nil
	}
	return "", nil
}

// createBalancer creates the load balancer once the source of its address is known.
func (r *Reconciler) createBalancer(ctx context.Context, s *scope) error {
	s.noBalancer(infrav1.LoadBalancerNotRunningReason, "LibvirtMachine %s doesn't exist yet", balancerName(s.infra))
	mac := ""
	if isByDHCP(s.infra, s.cluster) {
		mac = s.infra.Annotations[infrav1.LoadBalancerMACAddressAnnotation]
	} else if s.infra.Spec.ControlPlaneEndpoint.Host == "" {
		return nil // the claim has no address yet, or a user is setting the endpoint
	}
	configuration, err := r.newConfiguration(ctx, s)
	if err != nil {
		return err
	}
	wanted := s.infra.Spec.ControlPlaneLoadBalancer.HAProxy
	machine := &infrav1.LibvirtMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.infra.Namespace, Name: balancerName(s.infra),
			Labels: map[string]string{
				clusterv1.ClusterNameLabel: clusterName(s.infra), infrav1.LoadBalancerLabel: format.MustFormatValue(s.infra.Name),
			},
			Annotations: map[string]string{infrav1.LoadBalancerConfigurationAnnotation: configuration.String()},
		},
		Spec: infrav1.LibvirtMachineSpec{
			CPUs: wanted.CPUs, Memory: wanted.Memory, Image: wanted.Image, RootDisk: wanted.RootDisk, BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
			Interfaces: []infrav1.InterfaceSpec{{Network: cmp.Or(wanted.Network, "default"), MACAddress: mac}},
		},
	}
	if filter, filtered := s.infra.Labels[clusterv1.WatchLabel]; filtered {
		machine.Labels[clusterv1.WatchLabel] = filter
	}
	if err := controllerutil.SetControllerReference(s.infra, machine, r.Client.Scheme()); err != nil {
		return fmt.Errorf("building the load balancer: %w", err)
	}
	if err := r.Client.Create(ctx, machine); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is old
		}
		return fmt.Errorf("creating the load balancer, LibvirtMachine %s: %w", machine.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Created the load balancer", "LibvirtMachine", machine.Name)
	return nil
}

// chooseMAC chooses and writes the MAC address for all load balancers of the cluster.
func (r *Reconciler) chooseMAC(ctx context.Context, infra *infrav1.LibvirtCluster) error {
	id, err := uuid.NewRandom()
	if err != nil {
		return fmt.Errorf("choosing the MAC address of the load balancer: %w", err)
	}
	after := infra.DeepCopy()
	mac := domainxml.MACAddress(id.String(), 0)
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, infrav1.LoadBalancerMACAddressAnnotation, mac)
	if err := r.Client.Patch(ctx, after, outcome.Over(infra)); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Chose the MAC address of the load balancer", "macAddress", mac)
	return nil
}

// newConfiguration returns the configuration of a new load balancer. An endpoint from a pool is its only address. An
// endpoint that a user has set is an additional address to that from DHCP, unless it is a DNS name.
func (r *Reconciler) newConfiguration(ctx context.Context, s *scope) (loadbalancer.Configuration, error) {
	servers, _, err := r.servers(ctx, s)
	if err != nil {
		return loadbalancer.Configuration{}, err
	}
	configuration := loadbalancer.Configuration{Port: endpointPort(s.infra, s.cluster), Servers: servers}
	endpoint, err := netip.ParseAddr(s.infra.Spec.ControlPlaneEndpoint.Host)
	if err != nil || isByDHCP(s.infra, s.cluster) {
		return configuration, nil //nolint:nilerr // a DNS name, or empty
	}
	if pool := s.infra.Spec.ControlPlaneLoadBalancer.AddressFromPool; pool != nil {
		given, err := r.claimer(s.infra).Find(ctx, claimName(s.infra), *pool)
		if err == nil && given.Addr() == endpoint {
			configuration.Address, configuration.Gateway = given.Prefix, given.Gateway
			return configuration, nil
		}
		if err != nil && claims.NotGiven(err) == nil {
			return configuration, err
		}
	}
	configuration.VirtualAddress = endpoint
	return configuration, nil
}

// configureBalancer updates the servers of the load balancer. Its own addresses stay. While the address of a machine
// isn't known, no server is removed: after clusterctl move, which drops the status, machines have no address until they
// are reconciled. HAProxy checks each server itself.
func (r *Reconciler) configureBalancer(ctx context.Context, s *scope, machine *infrav1.LibvirtMachine) error {
	servers, all, err := r.servers(ctx, s)
	if err != nil {
		return err
	}
	has := machine.Annotations[infrav1.LoadBalancerConfigurationAnnotation]
	configuration, err := loadbalancer.Parse(has)
	if err != nil { // changed by a user
		if configuration, err = r.newConfiguration(ctx, s); err != nil {
			return err
		}
	}
	if !all {
		servers = append(servers, configuration.Servers...)
	}
	configuration.Port, configuration.Servers = endpointPort(s.infra, s.cluster), servers
	wanted := configuration.String()
	if wanted == has {
		return nil
	}
	after := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, infrav1.LoadBalancerConfigurationAnnotation, wanted)
	err = r.Client.Patch(ctx, after, outcome.Over(machine))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).Info("The load balancer has changed since it was read: waiting for the cache")
		return nil // its change triggers a reconcile
	}
	return outcome.Wrap(err, "writing the servers of the load balancer")
}

// servers returns the API servers of the cluster: the control plane machines that have an address and aren't being
// deleted, at the port of the Cluster. all reports whether the list is complete: it isn't if a machine that may have a
// domain has no address.
func (r *Reconciler) servers(ctx context.Context, s *scope) (servers []netip.AddrPort, all bool, err error) {
	list := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, list, client.InNamespace(s.infra.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: clusterName(s.infra)}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, false, fmt.Errorf("listing the LibvirtMachines of the control plane: %w", err)
	}
	port := cmp.Or(s.cluster.Spec.ClusterNetwork.APIServerPort, defaultPort)
	servers, all = []netip.AddrPort{}, true
	for i := range list.Items {
		machine := &list.Items[i]
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		if address := addressOf(machine); address.IsValid() {
			servers = append(servers, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // the CRD limits it
		} else if machine.Spec.ProviderID != "" {
			all = false
		}
	}
	return servers, all, nil
}

// addressOf returns the first IP address of a machine, or an invalid one.
func addressOf(machine *infrav1.LibvirtMachine) netip.Addr {
	for _, one := range machine.Status.Addresses {
		if one.Type != clusterv1.MachineInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(one.Address); err == nil {
			return address
		}
	}
	return netip.Addr{}
}

// deleteBalancer deletes the load balancer. It returns what it waits for, or "" when the load balancer is deleted.
func (r *Reconciler) deleteBalancer(ctx context.Context, s *scope) (string, error) {
	machine := &infrav1.LibvirtMachine{}
	// The cache may lack a new load balancer.
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.infra.Namespace, Name: balancerName(s.infra)}, machine)
	if apierrors.IsNotFound(err) || err == nil && !isBalancerOf(machine, s.infra) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the load balancer: %w", err)
	}
	if machine.DeletionTimestamp.IsZero() {
		if err := r.Client.Delete(ctx, machine, client.Preconditions{UID: &machine.UID}); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("deleting the load balancer: %w", err)
		}
	}
	return fmt.Sprintf("Waiting for the load balancer, LibvirtMachine %s, to be deleted", machine.Name), nil
}
