// Package workload plays what kubeadm and the kubelets do in the machines of workload clusters. A
// testbed's guests are too small for them, so that the control plane of a cluster runs as processes
// of the sandbox, at the address that the cluster has for it and with its authority, and there is a
// node for every guest that has reported. It begins with the report of the first control plane
// machine, as the real one does.
package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/controlplane"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// providerIDPrefix is what the provider puts before the instance ID of a machine.
const providerIDPrefix = "libvirt:///"

// Player plays the machines of all workload clusters.
type Player struct {
	// Dir is a folder for the files of control planes.
	Dir string
	// Network that control planes are reached by.
	Network *sandbox.Network
	// Etcd and APIServer are the programs.
	Etcd, APIServer string
	// Hosts are where guests report from.
	Hosts []*libvirthost.Host

	client client.Client
	events chan event.GenericEvent

	mutex    sync.Mutex
	clusters map[types.NamespacedName]*cluster
}

// cluster is a control plane that runs.
type cluster struct {
	controlPlane *controlplane.ControlPlane
	client       client.Client
}

// SetupWithManager adds the player to a manager whose scheme has Cluster API's core kinds, which have
// to be installed already.
func (p *Player) SetupWithManager(mgr ctrl.Manager) error {
	p.client = mgr.GetClient()
	p.clusters = map[types.NamespacedName]*cluster{}
	p.events = make(chan event.GenericEvent)
	for _, host := range p.Hosts {
		err := mgr.Add(managerFunc(func(ctx context.Context) error { return p.follow(ctx, host) }))
		if err != nil {
			return err
		}
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("workload-clusters").For(&clusterv1.Cluster{}).Complete(reconcile.Func(p.stopDeleted)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("workload-machines").For(&clusterv1.Machine{}).
		WatchesRawSource(source.Channel(p.events, handler.EnqueueRequestsFromMapFunc(p.all))).
		Complete(p)
}

type managerFunc func(ctx context.Context) error

// Start is that of a manager's runnable.
func (f managerFunc) Start(ctx context.Context) error { return f(ctx) }

// follow has all machines looked at when a host's guests have reported.
func (p *Player) follow(ctx context.Context, host *libvirthost.Host) error {
	for {
		_, more := host.Reports()
		select {
		case p.events <- event.GenericEvent{Object: &clusterv1.Machine{}}:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Player) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var machines clusterv1.MachineList
	if err := p.client.List(ctx, &machines); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing Machines")
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
	return requests
}

// Reconcile gives a machine whose guest has reported its node.
func (p *Player) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var machine clusterv1.Machine
	if err := p.client.Get(ctx, request.NamespacedName, &machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.DeletionTimestamp.IsZero() || machine.Status.NodeRef.IsDefined() {
		return ctrl.Result{}, nil
	}
	got := p.report(machine.Spec.ProviderID)
	if got == nil {
		return ctrl.Result{}, nil
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	_, isControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.clusters[key] == nil {
		if !isControlPlane {
			return ctrl.Result{}, fmt.Errorf("the cluster %s has no control plane for its worker %s", key, machine.Name)
		}
		started, err := p.start(ctx, key)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("starting the control plane of the cluster %s: %w", key, err)
		}
		p.clusters[key] = started
	}
	return ctrl.Result{}, p.clusters[key].join(ctx, &machine, got, isControlPlane)
}

// report is the newest one of the guest with a provider ID, or nil.
func (p *Player) report(providerID string) *report.Report {
	if providerID == "" {
		return nil
	}
	var newest *report.Report
	for _, host := range p.Hosts {
		reports, _ := host.Reports()
		for i := range reports {
			if providerIDPrefix+reports[i].MetaData.InstanceID == providerID {
				newest = &reports[i]
			}
		}
	}
	return newest
}

// start starts the control plane of a cluster as kubeadm init does: with the authority that Cluster
// API made for it, and with the ConfigMap by which Cluster API sees that it is initialized.
func (p *Player) start(ctx context.Context, key types.NamespacedName) (_ *cluster, err error) {
	var object clusterv1.Cluster
	if err := p.client.Get(ctx, key, &object); err != nil {
		return nil, err
	}
	var secret corev1.Secret
	if err := p.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-ca"}, &secret); err != nil {
		return nil, err
	}
	ca, err := authority.Load(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(object.Spec.ControlPlaneEndpoint.Host)
	if err != nil {
		return nil, fmt.Errorf("the endpoint has to be an address of the testbed's network: %w", err)
	}
	if err := p.Network.AddAddress(address); err != nil {
		return nil, err
	}
	running, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(p.Dir, string(object.UID)), Etcd: p.Etcd, APIServer: p.APIServer,
		Address: address, Port: int(object.Spec.ControlPlaneEndpoint.Port), CA: ca,
	})
	if err != nil {
		return nil, errors.Join(err, p.Network.RemoveAddress(address))
	}
	defer func() {
		if err != nil {
			running.Stop()
			err = errors.Join(err, p.Network.RemoveAddress(address))
		}
	}()
	started := &cluster{controlPlane: running}
	if started.client, err = client.New(running.Config, client.Options{}); err != nil {
		return nil, err
	}
	configuration := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: " + key.Name + "\n"},
	}
	return started, started.client.Create(ctx, configuration)
}

// join makes the node of a guest, as its kubelet does.
func (c *cluster) join(ctx context.Context, machine *clusterv1.Machine, got *report.Report, isControlPlane bool) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: got.MetaData.LocalHostname, Labels: map[string]string{corev1.LabelHostname: got.MetaData.LocalHostname}},
		Spec:       corev1.NodeSpec{ProviderID: providerIDPrefix + got.MetaData.InstanceID},
	}
	if isControlPlane {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	if err := c.client.Create(ctx, node); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("making the node of %s: %w", machine.Name, err)
	}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: got.Address}, {Type: corev1.NodeHostName, Address: node.Name}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: machine.Spec.Version, SystemUUID: got.SystemUUID, MachineID: strings.ReplaceAll(got.SystemUUID, "-", ""),
			OperatingSystem: "linux", Architecture: "amd64",
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "TestbedGuest", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		})
	}
	return c.client.Status().Update(ctx, node)
}

// stopDeleted ends the control plane of a cluster that is no more.
func (p *Player) stopDeleted(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	err := p.client.Get(ctx, request.NamespacedName, &clusterv1.Cluster{})
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	gone := p.clusters[request.NamespacedName]
	if gone == nil {
		return ctrl.Result{}, nil
	}
	delete(p.clusters, request.NamespacedName)
	gone.controlPlane.Stop()
	return ctrl.Result{}, p.Network.RemoveAddress(gone.controlPlane.Address())
}

// Client has all rights in the workload cluster with a name, once its control plane runs.
func (p *Player) Client(key types.NamespacedName) (client.Client, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	found := p.clusters[key]
	if found == nil {
		return nil, false
	}
	return found.client, true
}

// Stop ends all control planes.
func (p *Player) Stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, running := range p.clusters {
		running.controlPlane.Stop()
	}
}
