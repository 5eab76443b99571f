package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/yaml"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/extensionconfig"
	runtimeclient "sigs.k8s.io/cluster-api/exp/runtime/client"
	"sigs.k8s.io/cluster-api/exp/runtime/server"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/updateextension"
)

// extensions is the client for runtime extensions of Cluster API's controllers. Cluster API's own client is internal.
// This one follows the same rules as far as this provider's extension needs them, over real connections: it calls the
// discovered handlers of a server for the namespaces that an ExtensionConfig selects.
type extensions struct {
	client  client.Client
	catalog *runtimecatalog.Catalog

	lock  sync.Mutex
	ready bool
	known map[string]*runtimev1.ExtensionConfig
}

var _ runtimeclient.Client = &extensions{}

func newExtensions(c client.Client) (*extensions, error) {
	catalog := runtimecatalog.New()
	return &extensions{client: c, catalog: catalog, known: map[string]*runtimev1.ExtensionConfig{}}, runtimehooksv1.AddToCatalog(catalog)
}

// WarmUp implements runtimeclient.Client.
func (e *extensions) WarmUp(list *runtimev1.ExtensionConfigList) error {
	for i := range list.Items {
		if err := e.Register(&list.Items[i]); err != nil {
			return err
		}
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	e.ready = true
	return nil
}

// IsReady implements runtimeclient.Client.
func (e *extensions) IsReady() bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.ready
}

// Register implements runtimeclient.Client.
func (e *extensions) Register(config *runtimev1.ExtensionConfig) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.known[config.Name] = config.DeepCopy()
	return nil
}

// Unregister implements runtimeclient.Client.
func (e *extensions) Unregister(config *runtimev1.ExtensionConfig) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	delete(e.known, config.Name)
	return nil
}

// Discover implements runtimeclient.Client.
func (e *extensions) Discover(ctx context.Context, config *runtimev1.ExtensionConfig) (*runtimev1.ExtensionConfig, error) {
	response := &runtimehooksv1.DiscoveryResponse{}
	if err := e.call(ctx, config, runtimehooksv1.Discovery, "", &runtimehooksv1.DiscoveryRequest{}, response); err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Status.Handlers = nil
	for _, handler := range response.Handlers {
		config.Status.Handlers = append(config.Status.Handlers, runtimev1.ExtensionHandler{
			Name:           handler.Name + "." + config.Name,
			RequestHook:    runtimev1.GroupVersionHook{APIVersion: handler.RequestHook.APIVersion, Hook: handler.RequestHook.Hook},
			TimeoutSeconds: 10, FailurePolicy: runtimev1.FailurePolicyFail,
		})
	}
	return config, nil
}

// GetAllExtensions implements runtimeclient.Client.
func (e *extensions) GetAllExtensions(ctx context.Context, hook runtimecatalog.Hook, object client.Object) ([]string, error) {
	namespace := &corev1.Namespace{}
	if err := e.client.Get(ctx, client.ObjectKey{Name: object.GetNamespace()}, namespace); err != nil {
		return nil, err
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	var names []string
	for _, config := range e.known {
		selector, err := metav1.LabelSelectorAsSelector(config.Spec.NamespaceSelector)
		if err != nil {
			return nil, err
		}
		for _, handler := range config.Status.Handlers {
			if handler.RequestHook.Hook == runtimecatalog.HookName(hook) && selector.Matches(labels.Set(namespace.Labels)) {
				names = append(names, handler.Name)
			}
		}
	}
	return names, nil
}

// CallAllExtensions implements runtimeclient.Client, for hooks with at most one extension.
func (e *extensions) CallAllExtensions(ctx context.Context, hook runtimecatalog.Hook, object client.Object,
	request runtimehooksv1.RequestObject, response runtimehooksv1.ResponseObject) error {
	names, err := e.GetAllExtensions(ctx, hook, object)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		return nil
	}
	if len(names) != 1 {
		return fmt.Errorf("%s has %d extensions, and only one is supported", runtimecatalog.HookName(hook), len(names))
	}
	return e.CallExtension(ctx, hook, object, names[0], request, response)
}

// CallExtension implements runtimeclient.Client.
func (e *extensions) CallExtension(ctx context.Context, hook runtimecatalog.Hook, _ client.Object, name string,
	request runtimehooksv1.RequestObject, response runtimehooksv1.ResponseObject, _ ...runtimeclient.CallExtensionOption) error {
	handler, of, _ := strings.Cut(name, ".")
	e.lock.Lock()
	config := e.known[of]
	e.lock.Unlock()
	if config == nil {
		return fmt.Errorf("there is no ExtensionConfig %s", of)
	}
	return e.call(ctx, config, hook, handler, request, response)
}

// call posts a request to a server, by its client configuration.
func (e *extensions) call(ctx context.Context, config *runtimev1.ExtensionConfig, hook runtimecatalog.Hook, handler string,
	request runtime.Object, response runtimehooksv1.ResponseObject) error {
	version, err := e.catalog.GroupVersionHook(hook)
	if err != nil {
		return err
	}
	kind, err := e.catalog.Request(version)
	if err != nil {
		return err
	}
	request.GetObjectKind().SetGroupVersionKind(kind)
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(config.Spec.ClientConfig.CABundle) {
		return fmt.Errorf("ExtensionConfig %s has no CA", config.Name)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, config.Spec.ClientConfig.URL+runtimecatalog.GVHToPath(version, handler), bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(post)
	if err != nil {
		return fmt.Errorf("calling %s: %w", version.Hook, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(response); err != nil {
		return fmt.Errorf("reading the answer of %s, with status %d: %w", version.Hook, answer.StatusCode, err)
	}
	if response.GetStatus() != runtimehooksv1.ResponseStatusSuccess {
		return fmt.Errorf("%s: %s", version.Hook, response.GetMessage())
	}
	return nil
}

// addExtensions lets Cluster API's manager call extensions, and serves this provider's extension. Like the webhooks,
// the extension doesn't depend on the provider's manager.
func (w *World) addExtensions(ctx context.Context, mgr ctrl.Manager, reader client.Reader) (runtimeclient.Client, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return nil, err
	}
	w.extensionURL = fmt.Sprintf("https://127.0.0.1:%d", port)
	served, err := updateextension.New(reader, server.Options{Host: "127.0.0.1", Port: port, CertDir: w.environment.WebhookInstallOptions.LocalServingCertDir})
	if err != nil {
		return nil, err
	}
	secrets, err := ctrlcache.New(mgr.GetConfig(), ctrlcache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(served); err != nil {
		return nil, err
	}
	if err := mgr.Add(secrets); err != nil {
		return nil, err
	}
	called, err := newExtensions(mgr.GetClient())
	if err != nil {
		return nil, err
	}
	return called, (&extensionconfig.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), RuntimeClient: called, PartialSecretCache: secrets}).
		SetupWithManager(ctx, mgr, controller.Options{})
}

// UpdateExtension enables updates in place for the scene, with the manifest that users apply. The world has its own
// certificate authority and no Service.
func (s *Scene) UpdateExtension() {
	s.t.Helper()
	own, err := folder("github.com/clusterctl-release/clusterctl-release")
	s.Expect(err).ToNot(gomega.HaveOccurred())
	content, err := os.ReadFile(filepath.Join(own, "provider/config/inplaceupdates/extensionconfig.yaml")) //nolint:gosec // a file of the project
	s.Expect(err).ToNot(gomega.HaveOccurred())
	config := &runtimev1.ExtensionConfig{}
	s.Expect(yaml.UnmarshalStrict(content, config)).To(gomega.Succeed())
	namespace, name, _ := strings.Cut(config.Annotations[runtimev1.InjectCAFromSecretAnnotation], "/")
	err = s.Client.Create(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string][]byte{"ca.crt": s.environment.WebhookInstallOptions.LocalServingCAData}})
	if !apierrors.IsAlreadyExists(err) {
		s.Expect(err).ToNot(gomega.HaveOccurred())
	}
	config.Name = s.Namespace
	config.Spec.ClientConfig = runtimev1.ClientConfig{URL: s.extensionURL}
	config.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	s.Create(config)
	s.t.Cleanup(func() { _ = s.Client.Delete(context.Background(), config) })
	s.Condition(config, runtimev1.ExtensionConfigDiscoveredCondition, metav1.ConditionTrue)
	s.Eventually(func() []runtimev1.ExtensionHandler { s.Get(config); return config.Status.Handlers }).Should(gomega.HaveLen(3))
}
