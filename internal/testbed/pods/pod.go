package pods

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// pod is the running part of a Pod.
type pod struct {
	runner *Runner
	key    types.NamespacedName
	// name of its network namespace.
	name string
	dir  string

	// mutex guards the following fields. A pod is reconciled by one worker at a time, and its containers' goroutines
	// report to it.
	mutex      sync.Mutex
	network    *sandbox.Namespace
	started    metav1.Time
	containers map[string]*container
	stopping   bool
	stopped    bool
}

// waiting is the reason why a pod's containers don't run yet, as a kubelet reports it.
type waiting struct {
	reason, message string
}

func (w *waiting) Error() string {
	return w.reason + ": " + w.message
}

// sync starts the parts of the pod that don't run. The error is a *waiting if another object is missing.
func (p *pod) sync(ctx context.Context, object *corev1.Pod) (ctrl.Result, error) {
	if err := refuse(object); err != nil {
		return ctrl.Result{}, err
	}
	p.mutex.Lock()
	if p.started.IsZero() {
		p.started = now()
	}
	network := p.network
	p.mutex.Unlock()

	if err := p.writeVolumes(ctx, object); err != nil {
		return ctrl.Result{}, err
	}
	if network == nil {
		var err error
		if network, err = p.runner.Network.Join(p.name); err != nil {
			return ctrl.Result{}, err
		}
		p.mutex.Lock()
		p.network = network
		p.mutex.Unlock()
	}
	var result ctrl.Result
	var problems []error
	for i := range object.Spec.Containers {
		spec := &object.Spec.Containers[i]
		p.mutex.Lock()
		c := p.containers[spec.Name]
		if c == nil {
			c = &container{pod: p, name: spec.Name}
			p.containers[spec.Name] = c
		}
		p.mutex.Unlock()
		after, err := c.sync(object, spec)
		problems = append(problems, err)
		if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
			result.RequeueAfter = after
		}
	}
	return result, errors.Join(problems...)
}

// refuse returns an error for a pod with unsupported features.
func refuse(object *corev1.Pod) error {
	unsupported := func(what string) error {
		return &waiting{"CreateContainerConfigError", "the testbed's pods have no " + what}
	}
	switch {
	case len(object.Spec.InitContainers) > 0:
		return unsupported("init containers")
	case object.Spec.HostNetwork || object.Spec.HostPID || object.Spec.HostIPC:
		return unsupported("namespaces of the host")
	case object.Spec.RestartPolicy != corev1.RestartPolicyAlways:
		return unsupported("restart policy other than Always")
	case len(object.Spec.ReadinessGates) > 0:
		return unsupported("readiness gates")
	case len(object.Spec.HostAliases) > 0 || object.Spec.Hostname != "" || object.Spec.DNSConfig != nil:
		return unsupported("host names")
	case object.Spec.ShareProcessNamespace != nil && *object.Spec.ShareProcessNamespace:
		return unsupported("shared process namespace")
	case object.Spec.RuntimeClassName != nil:
		return unsupported("runtime classes")
	}
	for i := range object.Spec.Containers {
		c := &object.Spec.Containers[i]
		switch {
		case c.Lifecycle != nil:
			return unsupported("lifecycle hooks: remove those of " + c.Name)
		case len(c.VolumeDevices) > 0:
			return unsupported("block devices: remove those of " + c.Name)
		case c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged:
			return unsupported("privileged containers: change " + c.Name)
		}
	}
	return nil
}

// stop begins to end a pod's containers, and reports whether all have ended.
func (p *pod) stop(graceSeconds int64) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.stopping {
		return p.stopped
	}
	p.stopping = true
	go func() {
		var group sync.WaitGroup
		for _, c := range p.containers {
			group.Go(func() { c.stop(time.Duration(graceSeconds) * time.Second) })
		}
		group.Wait()
		if p.network != nil {
			_ = p.network.Remove()
		}
		_ = os.RemoveAll(p.dir)
		p.mutex.Lock()
		p.stopped = true
		p.mutex.Unlock()
		p.runner.changed(context.Background(), p.key)
	}()
	return false
}

func (p *pod) address() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.network == nil {
		return ""
	}
	return p.network.Address.String()
}

func (p *pod) logFile(containerName string) string {
	return filepath.Join(p.runner.LogDir(), fmt.Sprintf("%s_%s_%s.log", p.key.Namespace, p.key.Name, containerName))
}
