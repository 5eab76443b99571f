package installed

import (
	"context"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// AsInstalled returns what clusterctl makes of a components YAML before it installs it, or why clusterctl
// refuses it. target is a namespace to install in, or "" for the file's own. The error is that of preparing
// clusterctl's code.
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
