package release

import (
	"context"
	"fmt"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
)

// noOverrides is a folder that does not exist, so that the user's overrides are not read.
const noOverrides = "/nonexistent/clusterctl-release-reads-no-overrides"

// ClusterctlConfig returns a configuration of clusterctl with these values for its variables and keys and these
// providers, without the user's configuration.
func ClusterctlConfig(ctx context.Context, values map[string]string, providers ...config.Provider) (config.Client, error) {
	reader := config.NewMemoryReader()
	err := reader.Init(ctx, "")
	for _, p := range providers {
		if err == nil {
			_, err = reader.AddProvider(p.Name(), p.Type(), p.URL())
		}
	}
	reader.Set("overridesFolder", noOverrides)
	for name, value := range values {
		reader.Set(name, value)
	}
	client, newErr := config.New(ctx, "", config.InjectReader(reader))
	if err == nil {
		err = newErr
	}
	if err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	return client, nil
}
