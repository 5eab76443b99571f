package pods

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// restartDelay doubles with each restart, at most three times.
const restartDelay = time.Second

// container is one container of a pod, over all its restarts.
type container struct {
	pod  *pod
	name string

	mutex    sync.Mutex
	process  *sandbox.Process
	cancel   context.CancelFunc
	started  metav1.Time
	restarts int32
	last     *corev1.ContainerStateTerminated
	ready    bool
	stopping bool
	// log is the log of the current or last run, and previousLog that of the run before.
	log, previousLog *logRun
}

// sync starts the container unless it runs. It returns the delay until the next call, or 0.
func (c *container) sync(object *corev1.Pod, spec *corev1.Container) (time.Duration, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.process != nil || c.stopping {
		return 0, nil
	}
	if c.last != nil {
		if left := time.Until(c.last.FinishedAt.Add(restartDelay << min(c.restarts, 3))); left > 0 {
			return left, nil
		}
	}
	command, err := c.command(object, spec)
	if err != nil {
		return 0, err
	}
	prober, err := newProber(c, object, spec)
	if err != nil {
		return 0, err
	}
	cmd, err := command.Cmd()
	if err != nil {
		return 0, err
	}
	log, err := newLogRun(c.pod.logFile(c.name))
	if err != nil {
		return 0, err
	}
	process, err := sandbox.Start(c.name, cmd, log.file)
	if err != nil {
		return 0, err
	}
	c.previousLog, c.log = c.log, log
	if c.last != nil {
		c.restarts++
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.process, c.cancel, c.started, c.ready = process, cancel, now(), spec.ReadinessProbe == nil
	go c.watch(ctx, process)
	prober.start(ctx, process)
	return 0, nil
}

// watch records the end of a process.
func (c *container) watch(ctx context.Context, process *sandbox.Process) {
	<-process.Done()
	c.mutex.Lock()
	c.cancel()
	c.last = &corev1.ContainerStateTerminated{
		ExitCode: int32(process.ExitCode()), Reason: "Error", Message: process.Tail(), StartedAt: c.started, FinishedAt: now(),
	}
	if c.last.ExitCode == 0 {
		c.last.Reason = "Completed"
	}
	c.log.end()
	c.process, c.ready = nil, false
	c.mutex.Unlock()
	c.pod.runner.changed(context.WithoutCancel(ctx), c.pod.key)
}

// stop ends the container permanently.
func (c *container) stop(grace time.Duration) {
	c.mutex.Lock()
	c.stopping = true
	process := c.process
	c.mutex.Unlock()
	if process != nil {
		process.Stop(grace)
	}
}

func (c *container) setReady(ctx context.Context, ready bool) {
	c.mutex.Lock()
	changed := c.ready != ready && c.process != nil
	if changed {
		c.ready = ready
	}
	c.mutex.Unlock()
	if changed {
		c.pod.runner.changed(ctx, c.pod.key)
	}
}

// command returns the command of a container's process.
func (c *container) command(object *corev1.Pod, spec *corev1.Container) (sandbox.Command, error) {
	image, err := c.pod.runner.image(spec.Image)
	if err != nil {
		return sandbox.Command{}, err
	}
	root := filepath.Join(c.pod.dir, "root-"+c.name)
	for _, folder := range []string{"etc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			return sandbox.Command{}, err
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return sandbox.Command{}, err
	}
	if err := c.pod.runner.services.keep(root); err != nil {
		return sandbox.Command{}, err
	}
	env, err := c.environment(object, spec)
	if err != nil {
		return sandbox.Command{}, err
	}
	args := slices.Clone(spec.Command)
	if len(args) == 0 {
		args = []string{image.Entrypoint}
	}
	args = append(args, spec.Args...)
	for i := range args {
		args[i] = expand(args[i], env)
	}
	security := securityOf(object, spec, image)
	if security.nonRoot && security.user == 0 {
		return sandbox.Command{}, &waiting{"CreateContainerConfigError", "container has runAsNonRoot and image will run as root"}
	}
	command := sandbox.Command{
		Args: args, Dir: spec.WorkingDir, Hostname: object.Name, Network: c.pod.network, Root: root, ReadOnlyRoot: security.readOnlyRoot,
		User: uint32(security.user), Group: uint32(security.group), NoNewPrivileges: security.noNewPrivileges,
		Mounts: []sandbox.Mount{{Source: image.Program, Target: image.Entrypoint, ReadOnly: true}},
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		command.Env = append(command.Env, name+"="+env[name])
	}
	for _, mount := range spec.VolumeMounts {
		if mount.SubPath != "" || mount.SubPathExpr != "" {
			return sandbox.Command{}, &waiting{"CreateContainerConfigError", "the testbed's pods have no subPath"}
		}
		command.Mounts = append(command.Mounts, sandbox.Mount{Source: c.pod.volume(mount.Name), Target: mount.MountPath, ReadOnly: mount.ReadOnly})
	}
	return command, nil
}

func (r *Runner) image(ref string) (Image, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return Image{}, &waiting{"InvalidImageName", fmt.Sprintf("image %q: %v", ref, err)}
	}
	image, known := r.Images[named.Name()]
	if !known {
		return Image{}, &waiting{"ErrImagePull", fmt.Sprintf("the testbed has no program for the image %s, only for %s",
			ref, strings.Join(slices.Sorted(maps.Keys(r.Images)), ", "))}
	}
	return image, nil
}

// security has the rights of a container's process.
type security struct {
	user, group                            int64
	nonRoot, readOnlyRoot, noNewPrivileges bool
}

func securityOf(object *corev1.Pod, spec *corev1.Container, image Image) security {
	result := security{user: image.User, group: image.User}
	if pod := object.Spec.SecurityContext; pod != nil {
		set(&result.user, pod.RunAsUser)
		set(&result.group, pod.RunAsGroup)
		set(&result.nonRoot, pod.RunAsNonRoot)
	}
	if own := spec.SecurityContext; own != nil {
		set(&result.user, own.RunAsUser)
		set(&result.group, own.RunAsGroup)
		set(&result.nonRoot, own.RunAsNonRoot)
		set(&result.readOnlyRoot, own.ReadOnlyRootFilesystem)
		result.noNewPrivileges = own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation
	}
	return result
}

func set[T any](target *T, value *T) {
	if value != nil {
		*target = *value
	}
}

// environment returns the environment of a container. It has no variables of Services except the API server's.
func (c *container) environment(object *corev1.Pod, spec *corev1.Container) (map[string]string, error) {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "HOSTNAME": object.Name,
		"KUBERNETES_SERVICE_HOST": c.pod.runner.APIServer[0], "KUBERNETES_SERVICE_PORT": c.pod.runner.APIServer[1],
	}
	if len(spec.EnvFrom) > 0 {
		return nil, &waiting{"CreateContainerConfigError", "the testbed's pods have no envFrom"}
	}
	for _, variable := range spec.Env {
		switch from := variable.ValueFrom; {
		case from == nil:
			env[variable.Name] = expand(variable.Value, env)
		case from.FieldRef != nil:
			value, err := c.field(object, from.FieldRef.FieldPath)
			if err != nil {
				return nil, err
			}
			env[variable.Name] = value
		default:
			return nil, &waiting{"CreateContainerConfigError", "the testbed's pods support env with fieldRef only: change " + variable.Name}
		}
	}
	return env, nil
}

// field returns a field of the pod for the downward API.
func (c *container) field(object *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return object.Name, nil
	case "metadata.namespace":
		return object.Namespace, nil
	case "metadata.uid":
		return string(object.UID), nil
	case "spec.nodeName":
		return object.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.podIP":
		return c.pod.network.Address.String(), nil
	case "status.hostIP":
		return c.pod.runner.Network.Gateway().String(), nil
	}
	return "", &waiting{"CreateContainerConfigError", "the testbed's pods don't support the field " + path}
}

var variable = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expand replaces $(NAME) by the variable. Unknown names stay as they are, and $$ is $.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$$" {
			return "$"
		}
		if value, known := env[match[2:len(match)-1]]; known {
			return value
		}
		return match
	})
}
