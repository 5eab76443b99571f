package templates

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// The variables that clusterctl sets from its own arguments and flags.
// Source: clusterctl provider contract, Workload cluster templates, "Common variables".
const (
	ClusterNameVariable       = "CLUSTER_NAME"
	NamespaceVariable         = "NAMESPACE"
	KubernetesVersionVariable = "KUBERNETES_VERSION"
	ControlPlaneCountVariable = "CONTROL_PLANE_MACHINE_COUNT"
	WorkerCountVariable       = "WORKER_MACHINE_COUNT"
)

// Rendered is the result of rendering a flavor.
type Rendered struct {
	// Objects are in clusterctl's order: those of ClusterClasses first.
	Objects []unstructured.Unstructured
	// YAML is what `clusterctl generate cluster` prints.
	YAML []byte
}

// Render renders a flavor of a release with clusterctl's client, "" being the default flavor, with these values for its
// variables and without a management cluster. It includes every ClusterClass that the template names. The namespace is
// that of the values, else "default". The error is clusterctl's.
func Render(ctx context.Context, r *release.Release, flavor string, values map[string]string) (*Rendered, error) {
	c, err := newClient(ctx, r, values)
	if err != nil {
		return nil, fmt.Errorf("preparing clusterctl's client: %w", err)
	}
	options := client.GetClusterTemplateOptions{
		TargetNamespace:   cmp.Or(values[NamespaceVariable], "default"),
		ClusterName:       values[ClusterNameVariable],
		KubernetesVersion: values[KubernetesVersionVariable],
		YamlProcessor:     NewProcessor(),
		ProviderRepositorySource: &client.ProviderRepositorySourceOptions{
			InfrastructureProvider: r.Provider.Name + ":" + r.Version, Flavor: flavor,
		},
	}
	template, err := c.GetClusterTemplate(ctx, options)
	if err != nil {
		return nil, err
	}
	yaml, err := template.Yaml()
	if err != nil {
		return nil, fmt.Errorf("writing the rendered template: %w", err)
	}
	return &Rendered{Objects: template.Objs(), YAML: append(yaml, '\n')}, nil
}

// newClient returns clusterctl's client without the user's configuration: one provider, whose repository is the
// release, the given variables, and no cluster.
func newClient(ctx context.Context, r *release.Release, values map[string]string) (client.Client, error) {
	configClient, err := release.ClusterctlConfig(ctx, values,
		config.NewProvider(r.Provider.Name, "https://example.com/"+r.Provider.ComponentsFile(), r.Provider.Type))
	if err != nil {
		return nil, err
	}
	memory := repository.NewMemoryRepository().WithPaths("", r.Provider.ComponentsFile()).WithDefaultVersion(r.Version)
	for _, f := range r.Files {
		memory = memory.WithFile(r.Version, f.Name, f.Data)
	}
	return client.New(ctx, "", client.InjectConfig(configClient),
		client.InjectRepositoryFactory(func(ctx context.Context, input client.RepositoryClientFactoryInput) (repository.Client, error) {
			return repository.New(ctx, input.Provider, configClient, repository.InjectRepository(memory))
		}),
		client.InjectClusterClientFactory(func(client.ClusterClientFactoryInput) (cluster.Client, error) {
			return cluster.New(cluster.Kubeconfig{Path: "/nonexistent/kubeconfig"}, configClient), nil
		}))
}
