package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const ownNames = "127.0.0.1 localhost\n"

// names lets pods find Services by name: it keeps the file /etc/hosts of all containers, as there is no
// DNS. Nor is there a kube-proxy: a name leads to the pods themselves, as that of a Service without an
// address of its own does, so a Service is found where its port is the pods'.
type names struct {
	client client.Client

	mutex   sync.Mutex
	content []byte
	// files are those of the containers that were started so far.
	files []string
}

// Reconcile writes anew who is behind the names, after any EndpointSlice has changed.
func (n *names) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var list discoveryv1.EndpointSliceList
	if err := n.client.List(ctx, &list); err != nil {
		return ctrl.Result{}, err
	}
	content := []byte(ownNames + linesOf(list.Items))
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if bytes.Equal(n.content, content) {
		return ctrl.Result{}, nil
	}
	n.content = content
	n.files = slices.DeleteFunc(n.files, func(file string) bool {
		_, err := os.Stat(file)
		return errors.Is(err, os.ErrNotExist) // with its pod
	})
	var errs []error
	for _, file := range n.files {
		if err := replace(file, content); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// keep writes the file of a container that is to be started, and from then on whenever names change.
func (n *names) keep(root string) error {
	file := filepath.Join(root, "etc", "hosts")
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if !slices.Contains(n.files, file) {
		n.files = append(n.files, file)
	}
	if n.content == nil {
		n.content = []byte(ownNames)
	}
	return replace(file, n.content)
}

// replace gives a file another content at once, so that nobody reads half of it.
func replace(file string, content []byte) error {
	next := file + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// linesOf are a line for each endpoint that is ready, with the names of its Service, sorted.
func linesOf(slicesOfEndpoints []discoveryv1.EndpointSlice) string {
	var lines []string
	for _, slice := range slicesOfEndpoints {
		service := slice.Labels[discoveryv1.LabelServiceName]
		if service == "" || slice.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		name := service + "." + slice.Namespace + ".svc"
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, address := range endpoint.Addresses {
				lines = append(lines, fmt.Sprintf("%s %s %s.cluster.local\n", address, name, name))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}
