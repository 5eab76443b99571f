package store

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/oauth2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// NewRepository is one of clusterctl's own makers of a repository client.
type NewRepository func(context.Context, config.Provider, config.VariablesClient) (repository.Repository, error)

// ClusterctlClient returns clusterctl's own client for a repository on a server. Clusterctl finds the
// token under its variable; it is sent to the credential's hosts only.
func ClusterctlClient(ctx context.Context, newClient NewRepository, url, variable string, c transport.Credential) (repository.Repository, error) {
	reader := config.NewMemoryReader()
	if err := reader.Init(ctx, ""); err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	if c.Secret != "" {
		reader.Set(variable, c.Secret)
	}
	configuration, err := config.New(ctx, "", config.InjectReader(reader))
	if err != nil {
		return nil, fmt.Errorf("making a configuration for clusterctl's client: %w", err)
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: transport.Guarded(c), Timeout: transport.AttemptTime})
	// The provider's name and type are not looked at.
	return newClient(ctx, config.NewProvider("read-back", url, release.ProviderTypes()[0]), configuration.Variables())
}
