// Package index adds the fields for selecting objects to the caches of a manager and of workload clusters.
package index

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// The fields.
const (
	// MachineHost is the field of LibvirtMachines with the name of their host.
	MachineHost = "spec.hostName"
	// MachineProviderID is the field of LibvirtMachines with their provider ID.
	MachineProviderID = "spec.providerID"
	// MachineOwner is the field of Machines with the kind and name of their controller, as Owner writes it.
	MachineOwner = "metadata.controller"
	// NodeDomain is the field of nodes with the possible UUIDs of their domains.
	NodeDomain = "status.nodeInfo.systemUUID"
)

// Field is a field for selecting objects.
type Field struct {
	// Object is an object of the kind.
	Object client.Object
	// Name of the field.
	Name string
	// Values returns the values of an object.
	Values client.IndexerFunc
}

// Fields are all fields of a management cluster.
var Fields = []Field{
	{&infrav1.LibvirtMachine{}, MachineHost, HostOf},
	{&infrav1.LibvirtMachine{}, MachineProviderID, ProviderIDOf},
	{&clusterv1.Machine{}, MachineOwner, OwnerOf},
}

// HostOf returns the values of MachineHost.
func HostOf(object client.Object) []string {
	machine, ok := object.(*infrav1.LibvirtMachine)
	if !ok || machine.Spec.HostName == "" {
		return nil
	}
	return []string{machine.Spec.HostName}
}

// ProviderIDOf returns the values of MachineProviderID.
func ProviderIDOf(object client.Object) []string {
	machine, ok := object.(*infrav1.LibvirtMachine)
	if !ok || machine.Spec.ProviderID == "" {
		return nil
	}
	return []string{machine.Spec.ProviderID}
}

// Owner writes the kind and name of a controller.
func Owner(kind, name string) string { return kind + "/" + name }

// OwnerOf returns the values of MachineOwner.
func OwnerOf(object client.Object) []string {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return nil
	}
	return []string{Owner(owner.Kind, owner.Name)}
}

// DomainsOf returns the values of NodeDomain: the possible UUIDs in libvirt's form. SMBIOS before 2.6 doesn't define
// the order of the bytes in the first three fields, and guests then show them reversed.
func DomainsOf(object client.Object) []string {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	id, err := uuid.Parse(strings.TrimSpace(node.Status.NodeInfo.SystemUUID))
	if err != nil {
		return nil
	}
	reversed := id
	binary.LittleEndian.PutUint32(reversed[0:], binary.BigEndian.Uint32(id[0:]))
	binary.LittleEndian.PutUint16(reversed[4:], binary.BigEndian.Uint16(id[4:]))
	binary.LittleEndian.PutUint16(reversed[6:], binary.BigEndian.Uint16(id[6:]))
	if reversed == id {
		return []string{id.String()}
	}
	return []string{id.String(), reversed.String()}
}

// Add adds all fields to a manager, before its controllers are set up.
func Add(ctx context.Context, indexer client.FieldIndexer) error {
	for _, field := range Fields {
		if err := indexer.IndexField(ctx, field.Object, field.Name, field.Values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", field.Object, field.Name, err)
		}
	}
	return nil
}

// BoundTo returns the LibvirtMachines that are bound to a host. They belong to the cache: callers must not change them.
func BoundTo(ctx context.Context, reader client.Reader, host string) ([]infrav1.LibvirtMachine, error) {
	list := &infrav1.LibvirtMachineList{}
	if err := reader.List(ctx, list, client.MatchingFields{MachineHost: host}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the LibvirtMachines that are bound to the host: %w", err)
	}
	return list.Items, nil
}
