package testbed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

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

// providerNamespace is where the provider is installed.
const providerNamespace = "caplv-system"

// HostSpec is a host to start.
type HostSpec struct {
	// Name of the host and of its LibvirtHost.
	Name string
	// FailureDomain of the LibvirtHost.
	FailureDomain string
}

// DefaultHosts are three hosts in two failure domains.
var DefaultHosts = []HostSpec{{"host-a1", "a"}, {"host-a2", "a"}, {"host-b1", "b"}}

// StartHosts starts libvirt hosts and makes them known to the provider, which has to be installed: a
// LibvirtHost each, and one LibvirtClusterIdentity that every namespace may use.
func (t *Testbed) StartHosts(ctx context.Context, specs []HostSpec) ([]*libvirthost.Host, error) {
	ca, err := authority.New("libvirt hosts of the testbed")
	if err != nil {
		return nil, err
	}
	if err := t.createIdentity(ctx, ca); err != nil {
		return nil, err
	}
	var hosts []*libvirthost.Host
	for i, spec := range specs {
		host, err := libvirthost.Start(ctx, libvirthost.Options{
			Name: spec.Name, Dir: filepath.Join(t.Dir, "hosts", spec.Name), Network: t.Network, CA: ca,
			Guests: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 90, byte(i), 0}), 24),
		})
		if err != nil {
			return nil, err
		}
		t.stops = append(t.stops, func() error { host.Stop(); return nil })
		hosts = append(hosts, host)
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LibvirtHost",
			"metadata": map[string]any{"name": spec.Name, "labels": map[string]any{"failure-domain": spec.FailureDomain}},
			"spec": map[string]any{
				"uri": host.URI(), "identityRef": map[string]any{"name": Identity}, "failureDomain": spec.FailureDomain,
				// The hosts share one small machine, and what they have is all for guests.
				"reserved":   map[string]any{"cpus": int64(0), "memory": "0", "storage": "0"},
				"overcommit": map[string]any{"cpuPercent": int64(800)},
			},
		}}
		if err := t.Client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("making the LibvirtHost %s: %w", spec.Name, err)
		}
	}
	return hosts, nil
}

// createIdentity makes the credentials of all hosts.
func (t *Testbed) createIdentity(ctx context.Context, ca *authority.Authority) error {
	cert, key, err := ca.Issue(authority.Request{CommonName: "caplv"})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: providerNamespace, Name: Identity},
		Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key, corev1.ServiceAccountRootCAKey: ca.PEM()},
	}
	identity := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "LibvirtClusterIdentity",
		"metadata": map[string]any{"name": Identity},
		"spec":     map[string]any{"secretRef": map[string]any{"name": Identity, "namespace": providerNamespace}, "allowedNamespaces": map[string]any{}},
	}}
	if err := t.Client.Create(ctx, secret); err != nil {
		return err
	}
	return t.Client.Create(ctx, identity)
}

// guestPath is where the guest's image is served.
const guestPath = "/guest.qcow2"

// GuestVariables are the variables of the provider's templates for machines that start from the
// guest's image, which PrepareGuest has made and ServeGuest serves. The API server of the cluster gets
// an address that nothing else has.
func GuestVariables() (map[string]string, error) {
	content, err := os.ReadFile(GuestImage())
	if err != nil {
		return nil, fmt.Errorf("reading the guest's image: %w", err)
	}
	sum := sha256.Sum256(content)
	variables := map[string]string{
		"CONTROL_PLANE_ENDPOINT_IP": EndpointIP(10).String(),
		"LIBVIRT_IMAGE_URL":         "http://" + network.Masked().Addr().Next().String() + guestPath,
		"LIBVIRT_IMAGE_CHECKSUM":    "sha256:" + hex.EncodeToString(sum[:]),
	}
	for _, role := range []string{"CONTROL_PLANE", "WORKER"} {
		variables["LIBVIRT_"+role+"_CPUS"] = "1"
		variables["LIBVIRT_"+role+"_MEMORY"] = "256Mi"
		variables["LIBVIRT_"+role+"_DISK_SIZE"] = "1Gi"
	}
	return variables, nil
}

// ServeGuest serves the guest's image to pods.
func (t *Testbed) ServeGuest(ctx context.Context) error {
	content, err := os.ReadFile(GuestImage())
	if err != nil {
		return fmt.Errorf("reading the guest's image: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(t.Network.Gateway().String(), "80"))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(guestPath, func(response http.ResponseWriter, request *http.Request) {
		http.ServeContent(response, request, guestPath, time.Time{}, bytes.NewReader(content))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.stops = append(t.stops, server.Close)
	return nil
}

// EndpointIP is an address for the API server of a workload cluster, which nothing else has.
func EndpointIP(index byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 88, 255, index})
}

// Apply creates the objects in a YAML of several documents, as a user would with kubectl. Those that
// are there stay as they are.
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
