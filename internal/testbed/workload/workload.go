// Package workload simulates kubeadm and the kubelets in the machines of workload clusters. A testbed's guests are too
// small for them, so the control plane of a cluster runs as processes of the sandbox, at the cluster's endpoint and
// with its authority, and every guest that has reported has a node. The control plane starts with the report of the
// first control plane machine, like a real one.
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
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/controlplane"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// providerIDPrefix is the prefix of the instance ID in a provider ID.
const providerIDPrefix = "libvirt:///"

// Host returns the reports of its guests, the oldest first, and a channel that is closed when there are more.
type Host interface {
	Reports() ([]report.Report, <-chan struct{})
}

// Player simulates the machines of all workload clusters.
type Player struct {
	// Dir is the folder for the files of control planes.
	Dir string
	// Network is the network of the control planes.
	Network *sandbox.Network
	// Etcd and APIServer are the paths of the programs.
	Etcd, APIServer string
	// Hosts are the hosts of the guests.
	Hosts []Host

	mutex       sync.Mutex
	managements []*management
	clusters    map[types.NamespacedName]*cluster
	unaware     map[types.NamespacedName]bool
}

// management is a management cluster with simulated workload clusters.
type management struct {
	*Player
	client client.Client
	events chan event.GenericEvent
}

// cluster is the control plane of a workload cluster.
type cluster struct {
	mutex        sync.Mutex
	controlPlane *controlplane.ControlPlane
	client       client.Client
	// unaware says that the kubelets have no provider ID.
	unaware bool
}

// workers is the maximum of concurrent reconciles of machines, and of control planes that start concurrently.
const workers = 4

// SetupWithManager simulates the workload clusters of another management cluster, with a manager whose scheme has
// Cluster API's core kinds. Their CRDs must be installed. A cluster that moves between management clusters keeps its
// control plane.
func (p *Player) SetupWithManager(mgr ctrl.Manager) error {
	m := &management{Player: p, client: mgr.GetClient(), events: make(chan event.GenericEvent)}
	p.mutex.Lock()
	p.managements = append(p.managements, m)
	p.mutex.Unlock()
	for _, host := range p.Hosts {
		err := mgr.Add(managerFunc(func(ctx context.Context) error { return m.follow(ctx, host) }))
		if err != nil {
			return err
		}
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("workload-clusters").For(&clusterv1.Cluster{}).Complete(reconcile.Func(m.stopDeleted)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("workload-machines").For(&clusterv1.Machine{}).
		WatchesRawSource(source.Channel(m.events, handler.EnqueueRequestsFromMapFunc(m.all))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(m)
}

type managerFunc func(ctx context.Context) error

// Start implements manager.Runnable.
func (f managerFunc) Start(ctx context.Context) error { return f(ctx) }

// follow triggers reconciles of all machines after new reports of a host.
func (m *management) follow(ctx context.Context, host Host) error {
	for {
		_, more := host.Reports()
		select {
		case m.events <- event.GenericEvent{Object: &clusterv1.Machine{}}:
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

func (m *management) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var machines clusterv1.MachineList
	if err := m.client.List(ctx, &machines); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing Machines")
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
	return requests
}

// Reconcile creates the node of a machine whose guest has reported.
func (m *management) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var machine clusterv1.Machine
	if err := m.client.Get(ctx, request.NamespacedName, &machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.DeletionTimestamp.IsZero() || machine.Status.NodeRef.IsDefined() {
		return ctrl.Result{}, nil
	}
	got := m.report(machine.Spec.ProviderID)
	if got == nil {
		return ctrl.Result{}, nil
	}
	key := types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	_, isControlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
	played, err := m.controlPlane(ctx, key, isControlPlane)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("the control plane of the cluster %s of machine %s: %w", key, machine.Name, err)
	}
	return ctrl.Result{}, played.join(ctx, &machine, got, isControlPlane)
}

// controlPlane returns the control plane of a cluster, and starts it if begin is true.
func (m *management) controlPlane(ctx context.Context, key types.NamespacedName, begin bool) (*cluster, error) {
	m.mutex.Lock()
	played := m.clusters[key]
	if played == nil {
		if m.clusters == nil {
			m.clusters = map[types.NamespacedName]*cluster{}
		}
		played = &cluster{unaware: m.unaware[key]}
		m.clusters[key] = played
	}
	m.mutex.Unlock()

	played.mutex.Lock()
	defer played.mutex.Unlock()
	if played.controlPlane != nil {
		return played, nil
	}
	if !begin {
		return nil, errors.New("it doesn't run so far")
	}
	return played, m.start(ctx, key, played)
}

// report returns the newest report of the guest with a provider ID, or nil.
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

// start starts the control plane of a cluster like kubeadm init: with the authority that Cluster API created for it,
// and with the ConfigMap that tells Cluster API that it is initialized.
func (m *management) start(ctx context.Context, key types.NamespacedName, into *cluster) (err error) {
	var object clusterv1.Cluster
	if err := m.client.Get(ctx, key, &object); err != nil {
		return err
	}
	var secret corev1.Secret
	if err := m.client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-ca"}, &secret); err != nil {
		return err
	}
	ca, err := authority.Load(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(object.Spec.ControlPlaneEndpoint.Host)
	if err != nil {
		return fmt.Errorf("the endpoint must be an address of the testbed's network: %w", err)
	}
	if err := m.Network.AddAddress(address); err != nil {
		return err
	}
	running, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(m.Dir, key.Namespace+"_"+key.Name+"_"+string(object.UID)), Etcd: m.Etcd, APIServer: m.APIServer,
		Address: address, Port: int(object.Spec.ControlPlaneEndpoint.Port), CA: ca,
	})
	if err != nil {
		return errors.Join(err, m.Network.RemoveAddress(address))
	}
	defer func() {
		if err != nil {
			running.Stop()
			err = errors.Join(err, m.Network.RemoveAddress(address))
		}
	}()
	workload, err := client.New(running.Config, client.Options{})
	if err != nil {
		return err
	}
	configuration := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"},
		Data:       map[string]string{"ClusterConfiguration": "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: " + key.Name + "\n"},
	}
	if err := workload.Create(ctx, configuration); err != nil {
		return err
	}
	into.controlPlane, into.client = running, workload
	return nil
}

// join creates the node of a guest, like its kubelet.
func (c *cluster) join(ctx context.Context, machine *clusterv1.Machine, got *report.Report, isControlPlane bool) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: got.MetaData.LocalHostname, Labels: map[string]string{corev1.LabelHostname: got.MetaData.LocalHostname}},
		Spec:       corev1.NodeSpec{ProviderID: providerIDPrefix + got.MetaData.InstanceID},
	}
	if c.unaware {
		node.Spec.ProviderID = ""
	}
	if isControlPlane {
		node.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	if err := c.client.Create(ctx, node); apierrors.IsAlreadyExists(err) {
		err = c.client.Get(ctx, client.ObjectKeyFromObject(node), node)
		if err != nil || len(node.Status.Conditions) > 0 {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("creating the node of %s: %w", machine.Name, err)
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

// Unaware makes the kubelets of a cluster without machines omit the provider IDs, so that a controller must write them
// to the nodes.
func (p *Player) Unaware(key types.NamespacedName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.unaware == nil {
		p.unaware = map[types.NamespacedName]bool{}
	}
	p.unaware[key] = true
}

// stopDeleted ends the control plane of a cluster that was deleted in all management clusters.
func (p *Player) stopDeleted(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, m := range p.managements {
		if err := m.client.Get(ctx, request.NamespacedName, &clusterv1.Cluster{}); !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
	}
	deleted := p.clusters[request.NamespacedName]
	if deleted == nil {
		return ctrl.Result{}, nil
	}
	delete(p.clusters, request.NamespacedName)
	deleted.mutex.Lock()
	defer deleted.mutex.Unlock()
	if deleted.controlPlane == nil {
		return ctrl.Result{}, nil
	}
	deleted.controlPlane.Stop()
	return ctrl.Result{}, p.Network.RemoveAddress(deleted.controlPlane.Address())
}

// Client returns a client with all rights in a workload cluster, and false until its control plane runs.
func (p *Player) Client(key types.NamespacedName) (client.Client, bool) {
	p.mutex.Lock()
	played := p.clusters[key]
	p.mutex.Unlock()
	if played == nil {
		return nil, false
	}
	played.mutex.Lock()
	defer played.mutex.Unlock()
	return played.client, played.client != nil
}

// Stop ends all control planes.
func (p *Player) Stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, running := range p.clusters {
		running.mutex.Lock()
		if running.controlPlane != nil {
			running.controlPlane.Stop()
		}
		running.mutex.Unlock()
	}
}
