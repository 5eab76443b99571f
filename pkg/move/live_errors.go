package move

import (
	"context"
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The errors of a live cluster that can't be read at all.
var (
	// ErrUnreachable means that no API server answers.
	ErrUnreachable = errors.New("the API server can't be reached")
	// ErrUnauthorized means that the API server does not accept the credentials.
	ErrUnauthorized = errors.New("the API server does not accept the credentials: they are wrong or have expired; renew them, e.g. by logging in again or asking for a new kubeconfig")
	// ErrKubeconfig means that the kubeconfig is missing or names no cluster.
	ErrKubeconfig = errors.New("the kubeconfig can't be used")
)

// forbidden adds the problem that a resource may not be read, with the rule that permits it.
func (l *live) forbidden(resource schema.GroupVersionResource, namespace, why string) {
	role := "ClusterRole"
	where := resource.GroupResource().String()
	if namespace != "" {
		role = "Role in the namespace " + namespace
		where += " in " + namespace
	}
	if why != "" {
		why = " (" + why + ")"
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.world.problem(where, "reading them is forbidden%s: give the user a %s with the rule {apiGroups: [%q], resources: [%q], verbs: [get, list]}",
		why, role, resource.Group, resource.Resource)
}

// readError wraps the error of a request in one of the errors above, if one fits.
func readError(what string, err error) error {
	var status apierrors.APIStatus
	var network net.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("reading %s: %w (%w)", what, ErrUnauthorized, err)
	case !errors.As(err, &status) && (errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("reading %s: %w: %w; check the address in the kubeconfig, the network, and that the cluster runs", what, ErrUnreachable, err)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}
