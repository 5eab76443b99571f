// Package index adds the fields that the provider's controllers select objects by to a manager's cache.
package index

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// MachineHost is the field of LibvirtMachines with the name of the host that they are bound to.
const MachineHost = "spec.hostName"

// HostOf returns what MachineHost has of an object.
func HostOf(object client.Object) []string {
	machine, is := object.(*infrav1.LibvirtMachine)
	if !is || machine.Spec.HostName == "" {
		return nil
	}
	return []string{machine.Spec.HostName}
}

// MachineProviderID is the field of LibvirtMachines with their provider ID.
const MachineProviderID = "spec.providerID"

// ProviderIDOf returns what MachineProviderID has of an object.
func ProviderIDOf(object client.Object) []string {
	machine, is := object.(*infrav1.LibvirtMachine)
	if !is || machine.Spec.ProviderID == "" {
		return nil
	}
	return []string{machine.Spec.ProviderID}
}

// Add adds all fields. It is called once for a manager, before its controllers are set up.
func Add(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &infrav1.LibvirtMachine{}, MachineHost, HostOf); err != nil {
		return fmt.Errorf("indexing LibvirtMachines by their host: %w", err)
	}
	if err := indexer.IndexField(ctx, &infrav1.LibvirtMachine{}, MachineProviderID, ProviderIDOf); err != nil {
		return fmt.Errorf("indexing LibvirtMachines by their provider ID: %w", err)
	}
	return nil
}
