// Package pods runs pods on one node of a testbed: each container as a process of the sandbox, in
// namespaces of its own, as its user, with its environment, its volumes and its probes. There are no
// images: a table says which program an image reference stands for.
//
// It does what a kubelet does as far as controllers of Cluster API and its providers can tell, and
// refuses pods that ask for more.
package pods

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// Image is what is run for an image reference.
type Image struct {
	// Program is the path of a static program.
	Program string
	// Entrypoint is where the image has the program, and what is run when a container has no command.
	Entrypoint string
	// User that the image runs as unless the pod says otherwise.
	User int64
}

// Runner runs the pods of one node, and binds to it every pod that has no node yet.
type Runner struct {
	// Node is the name of the node, which no other Runner of the sandbox has.
	Node string
	// Dir is a folder for the pods' files. Logs are in logs/<namespace>_<pod>_<container>.log.
	Dir string
	// Network is where pods get their addresses from.
	Network *sandbox.Network
	// APIServer is the host and the port that pods reach the API server by.
	APIServer [2]string
	// CA signs the certificate of the node, and those of clients that may read logs there.
	CA *authority.Authority
	// Images are found by reference without tag and digest.
	Images map[string]Image

	client client.Client
	events chan event.GenericEvent
	// logs serves the logs of containers.
	logs *http.Server
	// services are the names by which pods find Services.
	services *names

	mutex sync.Mutex
	pods  map[types.UID]*pod
	names int
}

// SetupWithManager makes the node, and adds the runner to a manager. Pods run until Stop.
func (r *Runner) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.client = mgr.GetClient()
	r.pods = map[types.UID]*pod{}
	r.events = make(chan event.GenericEvent)
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	port, err := r.serveLogs(ctx)
	if err != nil {
		return fmt.Errorf("serving the logs of containers: %w", err)
	}
	if err := r.makeNode(ctx, direct, port); err != nil {
		return fmt.Errorf("making the node %s: %w", r.Node, err)
	}
	r.services = &names{client: mgr.GetClient()}
	if err := ctrl.NewControllerManagedBy(mgr).Named("service-names").For(&discoveryv1.EndpointSlice{}).Complete(r.services); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("pods").For(&corev1.Pod{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.podsThatWait)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.podsThatWait)).
		WatchesRawSource(source.Channel(r.events, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// makeNode makes a node that is ready and has plenty of everything, and serves logs at a port.
func (r *Runner) makeNode(ctx context.Context, c client.Client, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Node, Labels: map[string]string{corev1.LabelHostname: r.Node}}}
	if err := c.Create(ctx, node); err != nil {
		return err
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("500"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: r.Network.Gateway().String()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "TestbedReady", Message: "pods run as processes of the testbed",
			LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		}},
	}
	return c.Status().Update(ctx, node)
}

// podsThatWait are the pods for which a Secret or a ConfigMap may be what they wait for, or a part of
// their volumes.
func (r *Runner) podsThatWait(ctx context.Context, object client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing pods")
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == r.Node {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}

// Reconcile makes processes of what a pod asks for, and says in its status what became of them.
func (r *Runner) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var object corev1.Pod
	err := r.client.Get(ctx, request.NamespacedName, &object)
	if apierrors.IsNotFound(err) {
		r.forget(request.NamespacedName, "")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	r.forget(request.NamespacedName, object.UID)
	switch {
	case object.Spec.NodeName == "" && object.DeletionTimestamp.IsZero():
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: r.Node}}
		return ctrl.Result{}, client.IgnoreNotFound(r.client.SubResource("binding").Create(ctx, &object, binding))
	case object.Spec.NodeName != r.Node:
		return ctrl.Result{}, nil
	case !object.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.end(ctx, &object)
	case object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed:
		return ctrl.Result{}, nil
	}
	running := r.pod(&object)
	result, problem := running.sync(ctx, &object)
	return result, running.publish(ctx, &object, problem)
}

// pod returns what runs for a pod.
func (r *Runner) pod(object *corev1.Pod) *pod {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if running := r.pods[object.UID]; running != nil {
		return running
	}
	r.names++
	started := &pod{
		runner: r, key: client.ObjectKeyFromObject(object), containers: map[string]*container{},
		name: fmt.Sprintf("%s-pod%d", r.Node, r.names), dir: filepath.Join(r.Dir, string(object.UID)),
	}
	r.pods[object.UID] = started
	return started
}

// end stops a pod that is being deleted and lets its object go when nothing of it runs any more.
func (r *Runner) end(ctx context.Context, object *corev1.Pod) error {
	r.mutex.Lock()
	running := r.pods[object.UID]
	r.mutex.Unlock()
	if running != nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if object.DeletionGracePeriodSeconds != nil {
			grace = *object.DeletionGracePeriodSeconds
		}
		if !running.stop(grace) {
			return nil // it comes back by an event
		}
		r.mutex.Lock()
		delete(r.pods, object.UID)
		r.mutex.Unlock()
	}
	err := r.client.Delete(ctx, object, client.GracePeriodSeconds(0), client.Preconditions{UID: &object.UID})
	if apierrors.IsConflict(err) {
		return nil // it is another pod by now
	}
	return client.IgnoreNotFound(err)
}

// forget stops what runs under a name and isn't the pod with the UID.
func (r *Runner) forget(key types.NamespacedName, uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for id, running := range r.pods {
		if running.key == key && id != uid && running.stop(0) {
			delete(r.pods, id)
		}
	}
}

// Stop ends all pods at once. Their objects stay as they are.
func (r *Runner) Stop() {
	_ = r.logs.Close()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, running := range r.pods {
		for _, c := range running.containers {
			c.stop(0)
		}
	}
}

// changed makes the runner look at a pod again.
func (r *Runner) changed(ctx context.Context, key types.NamespacedName) {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case r.events <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// LogDir is the folder with the logs of all containers.
func (r *Runner) LogDir() string {
	return filepath.Join(r.Dir, "logs")
}

// write puts a file in place as a whole. One that is the same is left alone: programs watch them.
func write(file string, content []byte, user int64, mode os.FileMode) error {
	if current, err := os.ReadFile(file); err == nil && bytes.Equal(current, content) {
		return nil
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, content, mode); err != nil {
		return err
	}
	if err := os.Chown(temporary, int(user), -1); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}
