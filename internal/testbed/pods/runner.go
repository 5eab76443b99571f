// Package pods runs pods on one node of a testbed: each container as a process of the sandbox, in its own namespaces,
// as its user, with its environment, volumes and probes. There are no images: a table maps image references to
// programs.
//
// It implements the parts of a kubelet that controllers of Cluster API and its providers need, and refuses pods that
// need more.
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

// Image is the content of an image.
type Image struct {
	// Program is the path of a static program.
	Program string
	// Entrypoint is the path of the program in the image, which runs if a container has no command.
	Entrypoint string
	// User is the user of the image, unless the pod sets another one.
	User int64
}

// Runner runs the pods of one node, and binds every pod without a node to it.
type Runner struct {
	// Node is the name of the node, which is unique in the sandbox.
	Node string
	// Dir is the folder for the pods' files. Logs are in logs/<namespace>_<pod>_<container>.log.
	Dir string
	// Network is the network of the pods.
	Network *sandbox.Network
	// APIServer is the host and the port of the API server for pods.
	APIServer [2]string
	// CA signs the certificate of the node, and those of clients that may read logs from it.
	CA *authority.Authority
	// Images by their references without tag and digest.
	Images map[string]Image

	client client.Client
	events chan event.GenericEvent
	// logs serves the logs of containers.
	logs *http.Server
	// services writes the names of Services for pods.
	services *names

	mutex sync.Mutex
	pods  map[types.UID]*pod
	names int
}

// SetupWithManager creates the node, and adds the runner to a manager. Pods run until Stop.
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
		return fmt.Errorf("creating the node %s: %w", r.Node, err)
	}
	r.services = &names{client: mgr.GetClient()}
	if err := ctrl.NewControllerManagedBy(mgr).Named("service-names").For(&discoveryv1.EndpointSlice{}).Complete(r.services); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("pods").For(&corev1.Pod{}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.podsWaitingFor)).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.podsWaitingFor)).
		WatchesRawSource(source.Channel(r.events, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// makeNode creates a ready node with ample resources, whose logs are served at a port.
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

// podsWaitingFor returns requests for the pods that may wait for a Secret or a ConfigMap, or have it in a volume.
func (r *Runner) podsWaitingFor(ctx context.Context, object client.Object) []reconcile.Request {
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

// Reconcile starts and stops the processes of a pod, and writes its status.
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

// pod returns the running part of a pod.
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

// end stops a deleted pod, and deletes its object when all its processes have ended.
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
			return nil // an event triggers the next reconcile
		}
		r.mutex.Lock()
		delete(r.pods, object.UID)
		r.mutex.Unlock()
	}
	err := r.client.Delete(ctx, object, client.GracePeriodSeconds(0), client.Preconditions{UID: &object.UID})
	if apierrors.IsConflict(err) {
		return nil // another pod has the name
	}
	return client.IgnoreNotFound(err)
}

// forget stops the running pod with a name unless it has the UID.
func (r *Runner) forget(key types.NamespacedName, uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for id, running := range r.pods {
		if running.key == key && id != uid && running.stop(0) {
			delete(r.pods, id)
		}
	}
}

// Stop ends all pods at once. Their objects don't change.
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

// changed triggers a reconcile of a pod.
func (r *Runner) changed(ctx context.Context, key types.NamespacedName) {
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	select {
	case r.events <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}

// LogDir returns the folder with the logs of all containers.
func (r *Runner) LogDir() string {
	return filepath.Join(r.Dir, "logs")
}

// write replaces a file atomically. It doesn't touch an unchanged file, because programs watch them.
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
