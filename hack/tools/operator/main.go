// Command operator reads a provider's release from a registry with the code of the Cluster API operator, and writes the
// components.yaml and metadata.yaml that the operator would install into a folder.
//
//	operator URL TYPE NAME VERSION FOLDER
//
// The URL is that of spec.fetchConfig.oci, and the type infrastructure, bootstrap, control-plane or core.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	operatorv1 "sigs.k8s.io/cluster-api-operator/api/v1alpha2"
	"sigs.k8s.io/cluster-api-operator/internal/controller"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: operator URL TYPE NAME VERSION FOLDER")
		os.Exit(2)
	}
	if err := read(context.Background(), os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// read writes the components and the metadata that the operator would install for a version.
func read(ctx context.Context, url, kind, name, version, folder string) error {
	provider, err := providerOf(kind)
	if err != nil {
		return err
	}
	provider.SetName(name)
	spec := provider.GetSpec()
	spec.Version = version
	provider.SetSpec(spec)

	store := controller.NewMapStore(provider)
	if err := controller.CopyOCIStore(ctx, url, version, &store, nil); err != nil {
		return err
	}
	components, err := store.GetComponents(provider)
	if err != nil {
		return err
	}
	metadata, err := store.GetMetadata(provider)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "components.yaml"), components, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "metadata.yaml"), metadata, 0o600)
}

// providerOf returns the operator's provider of a type.
func providerOf(kind string) (operatorv1.GenericProvider, error) {
	for _, p := range []operatorv1.GenericProvider{
		&operatorv1.InfrastructureProvider{}, &operatorv1.BootstrapProvider{}, &operatorv1.ControlPlaneProvider{}, &operatorv1.CoreProvider{},
		&operatorv1.AddonProvider{}, &operatorv1.IPAMProvider{}, &operatorv1.RuntimeExtensionProvider{},
	} {
		if p.GetType() == kind {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the operator has no providers of type %s", kind)
}
