package installed

import (
	"context"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// AsInstalled returns the objects that clusterctl prepares from a components YAML before it installs them, or the
// refusal of clusterctl. target is the namespace to install in, or "" for the namespace of the file. The error is a
// failure to prepare clusterctl's code.
func AsInstalled(ctx context.Context, r *release.Release, raw []byte, target string, values map[string]string) (components repository.Components, refusal, err error) {
	client, err := release.ClusterctlConfig(ctx, values)
	if err != nil {
		return nil, nil, err
	}
	components, refusal = repository.NewComponents(repository.ComponentsInput{
		Provider:     config.NewProvider(r.Provider.Name, "", r.Provider.Type),
		ConfigClient: client,
		Processor:    templates.NewProcessor(),
		RawYaml:      raw,
		Options:      repository.ComponentsOptions{Version: r.Version, TargetNamespace: target},
	})
	return components, refusal, ctx.Err()
}
