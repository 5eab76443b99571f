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

// names lets pods find Services by name: it maintains the file /etc/hosts of all containers, because there is no DNS.
// There is no kube-proxy either: a name resolves to the pods themselves, as for a headless Service, so the port of a
// Service must be that of its pods.
type names struct {
	client client.Client

	mutex   sync.Mutex
	content []byte
	// files are the files of the started containers.
	files []string
}

// Reconcile rewrites the files after a change of any EndpointSlice.
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
		return errors.Is(err, os.ErrNotExist) // deleted with its pod
	})
	var errs []error
	for _, file := range n.files {
		if err := replace(file, content); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// keep writes the file of a container before it starts, and adds it to the updated files.
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

// replace replaces the content of a file atomically.
func replace(file string, content []byte) error {
	next := file + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return err
	}
	return os.Rename(next, file)
}

// linesOf returns a line for each ready endpoint, with the names of its Service, sorted.
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
