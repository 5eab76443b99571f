package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
)

const (
	// pageSize is the number of objects in one request, and requests the number of concurrent requests.
	pageSize = 500
	requests = 8
	// requestTimeout is the time limit of one request: a page of objects, or a connection attempt.
	requestTimeout = 30 * time.Second
)

// Connect returns the configuration for the cluster of a kubeconfig and a context, and the namespace of that context.
// "" means kubectl's default. The error is ErrKubeconfig.
func Connect(kubeconfig, kubeContext string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	return config, namespace, nil
}

// live reads a management cluster.
type live struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	// mutex guards the world while several kinds are read.
	mutex     sync.Mutex
	world     *World
	namespace string
	// whole means that objects are read with all their fields.
	whole bool
}

// Live reads the objects of a management cluster that a move of a namespace reads, in pages; "" means all namespaces.
// Of most objects it reads only the metadata. It reads cluster-scoped ones that head a move hierarchy completely and,
// with whole, all objects except Secrets and ConfigMaps. A resource that the credentials may not read becomes a problem
// that names the rule to add. The error is ErrUnreachable, ErrUnauthorized, or that of the API server.
func Live(ctx context.Context, config *rest.Config, namespace string, whole bool) (*World, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	config.QPS = -1 // requests is the limit, and the API server has its own
	l := &live{world: &World{Source: "the cluster at " + config.Host, Kinds: Kinds{}}, namespace: namespace, whole: whole}
	var objectsErr, metadataErr error
	l.objects, objectsErr = dynamic.NewForConfig(config)
	l.metadata, metadataErr = metadata.NewForConfig(config)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err := cmp.Or(objectsErr, metadataErr, err); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	if err := l.readKinds(ctx, client); err != nil {
		return nil, err
	}
	if err := l.readObjects(ctx); err != nil {
		return nil, err
	}
	if err := l.readClasses(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(l.world.Problems, func(a, b Problem) int { return strings.Compare(a.String(), b.String()) })
	return l.world, nil
}

// readKinds reads the kinds of the CRDs with clusterctl's label.
func (l *live) readKinds(ctx context.Context, client discovery.DiscoveryInterface) error {
	resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	crds, err := readCRDs(ctx, client.RESTClient(), resource)
	switch {
	case apierrors.IsForbidden(err):
		l.forbidden(resource, "", "they say what a move reads, and have its labels")
		return l.guessKinds(client)
	case err != nil:
		return readError("CRDs", err)
	}
	l.world.Kinds = KindsOf(crds...)
	if _, ok := l.world.Kinds[clusterKind]; !ok {
		l.world.problem("", "the cluster has no CRD of Clusters with the label %s: it isn't a management cluster, or was not set up by clusterctl", clusterctlv1.ClusterctlLabel)
	}
	return nil
}

// readCRDs reads the CRDs with clusterctl's label in pages, without schemas, which are most of the answer.
func readCRDs(ctx context.Context, client rest.Interface, resource schema.GroupVersionResource) ([]slimCRD, error) {
	var crds []slimCRD
	next := ""
	for {
		request := client.Get().AbsPath("apis", resource.Group, resource.Version, resource.Resource).Param("labelSelector", clusterctlv1.ClusterctlLabel)
		data, err := request.Param("limit", strconv.Itoa(pageSize/10)).Param("continue", next).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []slimCRD       `json:"items"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("the answer of the API server can't be read: %w", err)
		}
		crds = append(crds, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return crds, nil
		}
	}
}

// guessKinds takes the kinds from discovery if reading CRDs is forbidden.
func (l *live) guessKinds(client discovery.DiscoveryInterface) error {
	l.world.Kinds = KindsOf()
	lists, err := client.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return readError("the kinds that the API server serves", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || isOfKubernetes(gv.Group) {
			continue
		}
		for _, resource := range list.APIResources {
			gk := schema.GroupKind{Group: gv.Group, Kind: resource.Kind}
			if !slices.Contains(resource.Verbs, "list") {
				continue
			}
			kind := newKind(gk, !resource.Namespaced, nil)
			kind.Version, kind.Plural = gv.Version, resource.Name
			l.world.Kinds[gk] = kind
		}
	}
	l.world.assume("all kinds that are not Kubernetes' own are treated as kinds with the label %s and without labels to move them", clusterctlv1.ClusterctlLabel)
	return nil
}
