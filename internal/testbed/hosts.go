package testbed

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	utilyaml "sigs.k8s.io/cluster-api/util/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
)

// Identity is the name of the LibvirtClusterIdentity of the testbed's hosts, and of its Secret.
const Identity = "testbed"

// providerNamespace is the namespace of the provider.
const providerNamespace = "caplv-system"

// KnownHostsKey is the key in a Secret with credentials for the known_hosts of SSH.
const KnownHostsKey = "known_hosts"

// HostSpec is a host to start.
type HostSpec struct {
	// Name of the host and of its LibvirtHost.
	Name string
	// FailureDomain of the LibvirtHost.
	FailureDomain string
	// SSH selects SSH in place of TLS.
	SSH bool
	// Namespace is the only namespace that may use the host, which then has its own LibvirtClusterIdentity with the
	// host's name. It is empty for all namespaces.
	Namespace string
}

// DefaultHosts are three hosts in two failure domains, one of them reached by SSH.
var DefaultHosts = []HostSpec{{Name: "host-a1", FailureDomain: "a"}, {Name: "host-a2", FailureDomain: "a"}, {Name: "host-b1", FailureDomain: "b", SSH: true}}

// Hosts are running libvirt hosts.
type Hosts struct {
	// All hosts, in the order of their specs.
	All []*libvirthost.Host

	testbed *Testbed
	specs   []HostSpec
	// credentials give the provider access to all of them.
	credentials map[string][]byte
}

// StartHosts starts libvirt hosts concurrently.
func (t *Testbed) StartHosts(ctx context.Context, specs []HostSpec) (*Hosts, error) {
	ca, err := authority.New("libvirt hosts of the testbed")
	if err != nil {
		return nil, err
	}
	private, authorized, err := sshKey()
	if err != nil {
		return nil, err
	}
	hosts := &Hosts{All: make([]*libvirthost.Host, len(specs)), testbed: t, specs: specs}
	t.stops = append(t.stops, hosts.stop)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, spec := range specs {
		options := libvirthost.Options{
			Name: spec.Name, Dir: filepath.Join(t.Dir, "hosts", spec.Name), Network: t.Network, CA: ca,
			Guests: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 90, byte(i), 0}), 24),
		}
		if spec.SSH {
			options.AuthorizedKey = authorized
		}
		group.Go(func() (err error) {
			hosts.All[i], err = libvirthost.Start(groupCtx, options)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	cert, key, err := ca.Issue(authority.Request{CommonName: "caplv"})
	if err != nil {
		return nil, err
	}
	hosts.credentials = map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, corev1.ServiceAccountRootCAKey: ca.PEM()}
	for _, host := range hosts.All {
		if line := host.KnownHosts(); line != "" {
			hosts.credentials[corev1.SSHAuthPrivateKey] = private
			hosts.credentials[KnownHostsKey] = append(hosts.credentials[KnownHostsKey], line...)
		}
	}
	return hosts, nil
}

func (h *Hosts) stop() error {
	for _, host := range h.All {
		if host != nil {
			host.Stop()
		}
	}
	return nil
}

// Register creates a LibvirtHost for each host, and one LibvirtClusterIdentity for those that all namespaces may use.
// The provider must be installed.
func (h *Hosts) Register(ctx context.Context) error { return h.RegisterIn(ctx, h.testbed) }

// RegisterIn is Register for another management cluster that shares the hosts.
func (h *Hosts) RegisterIn(ctx context.Context, t *Testbed) error {
	if err := t.CreateIdentity(ctx, Identity, h.credentials); err != nil {
		return fmt.Errorf("creating the credentials of the hosts: %w", err)
	}
	for i, spec := range h.specs {
		identity := Identity
		if spec.Namespace != "" {
			identity = spec.Name
			if err := t.CreateIdentity(ctx, identity, h.credentials, spec.Namespace); err != nil {
				return fmt.Errorf("creating the credentials of the host %s: %w", spec.Name, err)
			}
		}
		if err := t.CreateHost(ctx, spec, h.All[i].URI(), identity); err != nil {
			return err
		}
	}
	return nil
}

// Credentials returns the data of the Secret of the hosts' LibvirtClusterIdentity.
func (h *Hosts) Credentials() map[string][]byte {
	return maps.Clone(h.credentials)
}

// CreateHost creates a LibvirtHost.
func (t *Testbed) CreateHost(ctx context.Context, spec HostSpec, uri, identity string) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LibvirtHost",
		"metadata": map[string]any{"name": spec.Name, "labels": map[string]any{"failure-domain": spec.FailureDomain}},
		"spec": map[string]any{
			"uri": uri, "identityRef": map[string]any{"name": identity}, "failureDomain": spec.FailureDomain,
			// The hosts share one small machine, and all of their resources are for guests.
			"reserved":   map[string]any{"cpus": int64(0), "memory": "0", "storage": "0"},
			"overcommit": map[string]any{"cpuPercent": int64(800)},
			// The folder of the logs of domains, which QEMULog reads.
			"consoleLogFolder": "/var/log/libvirt/qemu",
		},
	}}
	if err := t.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("creating the LibvirtHost %s: %w", spec.Name, err)
	}
	return nil
}

// CreateIdentity creates a LibvirtClusterIdentity for the given namespaces, or for all if there are none, and its
// Secret of the same name.
func (t *Testbed) CreateIdentity(ctx context.Context, name string, credentials map[string][]byte, namespaces ...string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: providerNamespace, Name: name}, Data: credentials}
	allowed := map[string]any{}
	if len(namespaces) > 0 {
		list := make([]any, len(namespaces))
		for i, namespace := range namespaces {
			list[i] = namespace
		}
		allowed["list"] = list
	}
	identity := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LibvirtClusterIdentity",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"secretRef": map[string]any{"name": name, "namespace": providerNamespace}, "allowedNamespaces": allowed},
	}}
	if err := t.Client.Create(ctx, secret); err != nil {
		return err
	}
	return t.Client.Create(ctx, identity)
}

// sshKey creates a key for SSH, in the format of OpenSSH.
func sshKey() (private []byte, public ssh.PublicKey, err error) {
	key, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("creating a key for SSH: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(secret, "testbed")
	if err != nil {
		return nil, nil, fmt.Errorf("creating a key for SSH: %w", err)
	}
	public, err = ssh.NewPublicKey(key)
	return pem.EncodeToMemory(block), public, err
}

// EndpointIP returns a unique address for the API server of a workload cluster.
func EndpointIP(index byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 88, 255, index})
}

// Apply creates the objects of a YAML with several documents. Existing objects don't change.
func (t *Testbed) Apply(ctx context.Context, manifest string) error {
	objects, err := utilyaml.ToUnstructured([]byte(manifest))
	if err != nil {
		return err
	}
	var errs []error
	for i := range objects {
		if err := t.Client.Create(ctx, &objects[i]); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("creating %s %s: %w", objects[i].GetKind(), objects[i].GetName(), err))
		}
	}
	return errors.Join(errs...)
}
