package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

// planOfLive compares plans of moves of live namespaces with clusterctl's dry runs, on an API server with growing
// namespaces. CRDs have no schemas there, so that it starts faster.
func planOfLive(ctx context.Context, tool, clusterctl, module, work string, runs int) (err error) {
	assets, err := output(ctx, "", "hack/tools/envtest")
	if err != nil {
		return err
	}
	crds, err := liveCRDs(module)
	if err != nil {
		return err
	}
	log.SetLogger(logr.Discard())
	environment := &envtest.Environment{CRDs: crds, BinaryAssetsDirectory: assets}
	config, err := environment.Start()
	if err != nil {
		return fmt.Errorf("starting an API server: %w", err)
	}
	defer func() {
		if stopped := environment.Stop(); err == nil {
			err = stopped
		}
	}()
	config.QPS, config.Burst = -1, -1
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	user, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(work, "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return err
	}
	for _, objects := range []int{1_000, 3_000, 10_000} {
		namespace := fmt.Sprintf("team-%d", objects)
		if err := fill(ctx, c, namespace, objects/objectsPerCluster); err != nil {
			return fmt.Errorf("making the namespace %s: %w", namespace, err)
		}
		compared := comparison{
			title: fmt.Sprintf("plan of the move of a live namespace with %d objects", objects), aim: 0.05, runs: min(runs, 5),
			ours: "clusterctl-release move-plan --live", our: [][]string{{tool, "move-plan", "--live", "--kubeconfig", kubeconfig, "--namespace", namespace}},
			peers: "clusterctl move --dry-run", peer: [][]string{{clusterctl, "move", "--dry-run", "--kubeconfig", kubeconfig, "--namespace", namespace}},
			environment: []string{"CLUSTERCTL_DISABLE_VERSIONCHECK=true"},
			before:      func() error { return nil },
		}
		if err := compared.run(ctx, work, 0); err != nil {
			return err
		}
	}
	return nil
}

// liveCRDs returns the CRDs of Cluster API, of clusterctl's inventory and of the demo provider, in their
// stored version, without schemas.
func liveCRDs(module string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var crds []*apiextensionsv1.CustomResourceDefinition
	add := func(data []byte) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			return err
		}
		anything := true
		var stored []apiextensionsv1.CustomResourceDefinitionVersion
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				version.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}}
				version.Subresources, version.SelectableFields, version.AdditionalPrinterColumns = nil, nil, nil
				stored = append(stored, version)
			}
		}
		crd.Spec.Versions = stored
		crd.Labels = map[string]string{"clusterctl.cluster.x-k8s.io": "", "cluster.x-k8s.io/v1beta2": "v1beta2"}
		crds = append(crds, crd)
		return nil
	}
	for _, part := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm", "cmd/clusterctl"} {
		files, err := filepath.Glob(filepath.Join(module, part, "config/crd/bases/*.yaml"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("no CRDs in %s of Cluster API: %w", part, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := add(data); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	for _, kind := range []string{"DemoCluster", "DemoMachine", "DemoMachineTemplate"} {
		if err := add([]byte(demoCRD(kind))); err != nil {
			return nil, err
		}
	}
	return crds, nil
}

// fill creates a namespace with Clusters.
func fill(ctx context.Context, c client.Client, namespace string, clusters int) error {
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range clusters {
		group.Go(func() error {
			uids := map[*generated]types.UID{}
			for _, o := range generatedCluster(i) {
				var text strings.Builder
				o.write(&text)
				var list []map[string]any
				if err := yaml.Unmarshal([]byte(text.String()), &list); err != nil {
					return err
				}
				u := &unstructured.Unstructured{Object: list[0]}
				u.SetNamespace(namespace)
				u.SetResourceVersion("")
				u.SetUID("")
				u.SetFinalizers(nil)
				if references := u.GetOwnerReferences(); len(references) > 0 {
					references[0].UID = uids[o.owner]
					u.SetOwnerReferences(references)
				}
				if err := c.Create(ctx, u); err != nil {
					return err
				}
				uids[o] = u.GetUID()
			}
			return nil
		})
	}
	return group.Wait()
}
