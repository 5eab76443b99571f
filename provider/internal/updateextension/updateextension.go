// Package updateextension tells Cluster API which changes of machines this provider carries out in place,
// and how far it is with one: the hooks CanUpdateMachine, CanUpdateMachineSet and UpdateMachine of
// "Implementing in-place update hooks" in Cluster API's book.
//
// It changes nothing. The controller of LibvirtMachines does, and says so in a condition; each replica of
// the manager can answer for it, also one that isn't the leader.
package updateextension

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
)

// New returns a server of the hooks, ready to be added to a manager. reader reads LibvirtMachines from the
// API server itself: what a cache has may be older than the change that is asked about. The catalog of
// options is set here.
func New(reader client.Reader, options server.Options) (*server.Server, error) {
	options.Catalog = runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(options.Catalog); err != nil {
		return nil, fmt.Errorf("listing the hooks of Cluster API: %w", err)
	}
	extension, err := server.New(options)
	if err != nil {
		return nil, fmt.Errorf("making the server of the update extension: %w", err)
	}
	for _, handler := range []server.ExtensionHandler{
		{Name: "can-update-machine", Hook: runtimehooksv1.CanUpdateMachine, HandlerFunc: canUpdateMachine},
		{Name: "can-update-machine-set", Hook: runtimehooksv1.CanUpdateMachineSet, HandlerFunc: canUpdateMachineSet},
		{Name: "update-machine", Hook: runtimehooksv1.UpdateMachine,
			HandlerFunc: func(ctx context.Context, request *runtimehooksv1.UpdateMachineRequest, response *runtimehooksv1.UpdateMachineResponse) {
				updateMachine(ctx, reader, request, response)
			}},
	} {
		if err := extension.AddExtensionHandler(handler); err != nil {
			return nil, fmt.Errorf("adding the hook %s to the update extension: %w", handler.Name, err)
		}
	}
	return extension, nil
}
