package main

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"sigs.k8s.io/cluster-api/exp/runtime/server"
	capiflags "sigs.k8s.io/cluster-api/util/flags"

	"github.com/clusterctl-release/clusterctl-release/provider/feature"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/updateextension"
)

// addUpdateExtension adds the server of the hooks for updates in place to a manager, and a check of it.
// Nothing is served when the feature is off.
func (o *options) addUpdateExtension(mgr ctrl.Manager) error {
	if !feature.Gates.Enabled(feature.InPlaceUpdates) {
		return nil
	}
	tlsOptions, _, err := capiflags.GetManagerOptions(o.diagnostics)
	if err != nil {
		return fmt.Errorf("reading the TLS flags: %w", err)
	}
	extension, err := updateextension.New(mgr.GetAPIReader(), server.Options{
		Port: o.extensionPort, CertDir: o.webhookCertDir, CertName: o.webhookCertName, KeyName: o.webhookKeyName, TLSOpts: tlsOptions,
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(extension); err != nil {
		return fmt.Errorf("adding the update extension to the manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("update-extension", extension.StartedChecker()); err != nil {
		return fmt.Errorf("adding the readiness check of the update extension: %w", err)
	}
	return nil
}
