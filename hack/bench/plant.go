package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/unready"
)

// plant is an API server with hosts.
type plant struct {
	environment *envtest.Environment
	config      *rest.Config
	client      client.WithWatch
	kubeconfig  string
	hosts       []*libvirtd
	calls       *callCounter
	waiter      unready.Waiter
}

// unready lists the provider's objects that aren't ready.
func (p *plant) unready(ctx context.Context) string {
	kind := func(name string) schema.GroupVersionKind { return schema.FromAPIVersionAndKind(infraGroup, name) }
	return unready.List(ctx, p.client, kind("LibvirtHost"), kind("LibvirtCluster"), kind("LibvirtMachinePool"), kind("LibvirtMachine"))
}

func (p *plant) start(assets, module, work string) (err error) {
	p.environment = &envtest.Environment{BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true, ControlPlaneStopTimeout: time.Minute,
		CRDDirectoryPaths: []string{"provider/config/crd/bases", filepath.Join(module, "core/config/crd/bases")}}
	if p.config, err = p.environment.Start(); err != nil {
		p.environment = nil
		return fmt.Errorf("starting an API server: %w", err)
	}
	p.config.QPS, p.config.Burst = -1, -1
	if p.client, err = client.NewWithWatch(p.config, client.Options{}); err != nil {
		return err
	}
	user, err := p.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return err
	}
	p.kubeconfig = filepath.Join(work, "machines.kubeconfig")
	if err := os.WriteFile(p.kubeconfig, content, 0o600); err != nil {
		return err
	}
	for i := range hostsOfMachines {
		host, err := startLibvirtd(i, p.calls)
		if err != nil {
			return err
		}
		p.hosts = append(p.hosts, host)
		if err := host.prepare(); err != nil {
			return fmt.Errorf("preparing host %d: %w", i, err)
		}
	}
	return nil
}

func (p *plant) stop() error {
	for _, host := range p.hosts {
		host.stop()
	}
	if p.environment == nil {
		return nil
	}
	return p.environment.Stop()
}

// create makes an object from a template of YAML.
func (p *plant) create(ctx context.Context, text string, values ...any) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, text, values...), &u.Object); err != nil {
		return nil, err
	}
	return u, p.client.Create(ctx, u)
}

// fillHosts creates hosts, and a Cluster with its infrastructure.
func (p *plant) fillHosts(ctx context.Context) error {
	for i, host := range p.hosts {
		if _, err := p.create(ctx, `
apiVersion: %s
kind: LibvirtHost
metadata: {name: host-%d}
spec:
  uri: "test:///default?socket=%s"
  failureDomain: rack-%d
  storagePools: {images: %[5]s, disks: [%[5]s]}
  overcommit: {cpuPercent: 1600}
  reserved: {cpus: 0}
`, infraGroup, i, host.socket, i%4, poolOfHosts); err != nil {
			return err
		}
	}
	if err := p.client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bootstrap"},
		Data: map[string][]byte{"value": bytes.Repeat([]byte("#cloud-config\n"), 500), "format": []byte("cloud-config")}}); err != nil {
		return err
	}
	return p.createCluster(ctx, "bench", "192.0.2.10", "{}")
}

// createCluster creates a Cluster whose machines are placed on the hosts that a selector matches.
func (p *plant) createCluster(ctx context.Context, name, endpoint, hostSelector string) error {
	if _, err := p.create(ctx, "apiVersion: %s\nkind: LibvirtCluster\nmetadata: {namespace: default, name: %s}\nspec: {controlPlaneEndpoint: {host: %s, port: 6443}, hostSelector: %s}\n",
		infraGroup, name, endpoint, hostSelector); err != nil {
		return err
	}
	cluster, err := p.create(ctx, `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: default, name: %[1]s}
spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtCluster, name: %[1]s}}
`, name)
	if err != nil {
		return err
	}
	return p.client.Status().Patch(ctx, cluster, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"initialization":{"infrastructureProvisioned":true}}}`)))
}

// fillMachinesOf creates LibvirtMachines with the Machines that own them.
func (p *plant) fillMachinesOf(ctx context.Context, machines int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range machines {
		group.Go(func() error { return p.createMachine(ctx, "bench", i) })
	}
	return group.Wait()
}

// machineSpec is the spec of a small machine.
const machineSpec = `cpus: 1
memory: 512Mi
firmware: {type: BIOS}
image: {volume: image.qcow2}
rootDisk: {size: 1Gi}
`

func (p *plant) createMachine(ctx context.Context, cluster string, number int) error {
	name := fmt.Sprintf("machine-%d", number)
	machine, err := p.create(ctx, `
apiVersion: %s
kind: Machine
metadata: {namespace: default, name: %[2]s, labels: {cluster.x-k8s.io/cluster-name: %[3]s}}
spec:
  clusterName: %[3]s
  bootstrap: {dataSecretName: bootstrap}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachine, name: %[2]s}
`, coreGroup, name, cluster)
	if err != nil {
		return err
	}
	_, err = p.create(ctx, `
apiVersion: %s
kind: LibvirtMachine
metadata:
  namespace: default
  name: %[2]s
  labels: {cluster.x-k8s.io/cluster-name: %[6]s}
  ownerReferences: [{apiVersion: %[3]s, kind: Machine, name: %[2]s, uid: %[4]s, controller: true}]
spec:
%[5]s
`, infraGroup, name, coreGroup, machine.GetUID(), indent(machineSpec, 2), cluster)
	return err
}
