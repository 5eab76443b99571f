package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/topology"
)

const (
	// pageSize is how many objects are asked for at once, and requests how many requests run at a time.
	pageSize = 500
	requests = 4
	// requestTimeout is for one request: a page of objects, or finding out that nobody answers.
	requestTimeout = 30 * time.Second
)

// The errors of a live cluster that nothing can be read of.
var (
	// ErrUnreachable says that no API server answers.
	ErrUnreachable = errors.New("the API server can't be reached")
	// ErrUnauthorized says that the API server does not take the credentials.
	ErrUnauthorized = errors.New("the API server does not accept the credentials: they are wrong or have expired; renew them, e.g. by logging in again or asking for a new kubeconfig")
	// ErrKubeconfig says that the kubeconfig does not say how to reach a cluster.
	ErrKubeconfig = errors.New("the kubeconfig can't be used")
)

// Connect returns how to reach the cluster of a kubeconfig and a context, and the namespace of that
// context. "" stands for what kubectl would take. The error is ErrKubeconfig.
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
	// mutex guards the world while kinds are read side by side.
	mutex sync.Mutex
	world *World
	space string
	// whole says that objects are read with all their fields.
	whole bool
}

// Live reads of a management cluster what a move of a namespace reads, in pages; "" is all namespaces.
// Of most objects, and of all Secrets, only the metadata is read; with whole, all but Secrets and
// ConfigMaps is. What the credentials don't permit to read becomes a problem that names the rule to
// add. The error is ErrUnreachable, ErrUnauthorized, or that of the API server.
func Live(ctx context.Context, config *rest.Config, namespace string, whole bool) (*World, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	config.QPS, config.Burst = 100, 200
	l := &live{world: &World{Source: "the cluster at " + config.Host, Kinds: Kinds{}}, space: namespace, whole: whole}
	var err error
	if l.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	if l.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	if err := l.readKinds(ctx, config); err != nil {
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

// readKinds reads the CRDs with clusterctl's label.
func (l *live) readKinds(ctx context.Context, config *rest.Config) error {
	resource := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKubeconfig, err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	err = l.pages(ctx, func(options metav1.ListOptions) (string, error) {
		// Schemas are most of what comes, and are passed over here and not kept.
		data, err := client.RESTClient().Get().AbsPath("apis", resource.Group, resource.Version, resource.Resource).
			Param("labelSelector", clusterctlv1.ClusterctlLabel).Param("limit", strconv.Itoa(pageSize/10)).Param("continue", options.Continue).DoRaw(ctx)
		if err != nil {
			return "", err
		}
		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []slimCRD       `json:"items"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return "", fmt.Errorf("the answer of the API server can't be read: %w", err)
		}
		for i := range list.Items {
			crds = append(crds, list.Items[i].crd())
		}
		return list.Metadata.Continue, nil
	})
	switch {
	case apierrors.IsForbidden(err):
		l.forbidden(resource, "", "they say what a move reads, and have its labels")
		return l.guessKinds(client)
	case err != nil:
		return readError("CRDs", err)
	}
	l.world.Kinds = KindsOf(crds...)
	if _, ok := l.world.Kinds[clusterKind]; !ok {
		l.world.problem("", "the cluster has no CRD of Clusters with the label %s: it is no management cluster, or was not set up by clusterctl", clusterctlv1.ClusterctlLabel)
	}
	return nil
}

// guessKinds takes what discovery serves of Cluster API's groups for want of their CRDs.
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
			l.world.Kinds[gk] = Kind{
				GroupKind: gk, Version: gv.Version, Plural: resource.Name, ClusterScoped: !resource.Namespaced,
				Move: hierarchiesOfCore[gk], MoveHierarchy: hierarchiesOfCore[gk],
			}
		}
	}
	l.world.assume("all kinds that are not Kubernetes' own are taken for kinds with the label %s and without labels to move them", clusterctlv1.ClusterctlLabel)
	return nil
}

// readObjects reads the objects of all kinds, several kinds at a time.
func (l *live) readObjects(ctx context.Context) error {
	// Before the rest: the Secrets of infrastructure providers' namespaces are read too.
	namespaces, err := l.readProviders(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requests)
	for _, gk := range slices.SortedFunc(maps.Keys(l.world.Kinds), func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }) {
		kind := l.world.Kinds[gk]
		switch {
		case gk == providerKind && l.space == "": // they have been read
		case gk == clusterKind:
			group.Go(func() error { return l.readClusters(ctx, kind) })
		default:
			group.Go(func() error { return l.readKind(ctx, kind, l.scope(kind)) })
		}
		if gk != secretKind || l.space == "" {
			continue
		}
		for _, namespace := range namespaces {
			if namespace != l.space {
				group.Go(func() error { return l.readKind(ctx, kind, namespace) })
			}
		}
	}
	return group.Wait()
}

// scope returns the namespace in which a kind's objects are listed.
func (l *live) scope(kind Kind) string {
	if kind.ClusterScoped {
		return ""
	}
	return l.space
}

// readProviders reads clusterctl's inventory and returns the namespaces of infrastructure providers.
func (l *live) readProviders(ctx context.Context) ([]string, error) {
	kind := Kind{GroupKind: providerKind, Version: clusterctlv1.GroupVersion.Version, Plural: "providers"}
	before := len(l.world.Objects)
	if err := l.readKind(ctx, kind, ""); err != nil {
		return nil, err
	}
	var namespaces []string
	for _, o := range l.world.Objects[before:] {
		if o.text("type") == string(clusterctlv1.InfrastructureProviderType) && !slices.Contains(namespaces, o.Namespace) {
			namespaces = append(namespaces, o.Namespace)
		}
	}
	return namespaces, nil
}

// readClusters reads the Clusters of all namespaces, as those of others may use ClusterClasses of the
// one that is moved; or where that is forbidden, those of the namespace.
func (l *live) readClusters(ctx context.Context, kind Kind) error {
	err := l.list(ctx, kind, "")
	if l.space == "" || !apierrors.IsForbidden(err) {
		return l.judge(kind, "", err)
	}
	l.forbidden(kind.resource(), "", "Clusters of other namespaces may use ClusterClasses of this one, which are not deleted then")
	return l.readKind(ctx, kind, l.space)
}

// readKind reads the objects of a kind.
func (l *live) readKind(ctx context.Context, kind Kind, namespace string) error {
	return l.judge(kind, namespace, l.list(ctx, kind, namespace))
}

// judge turns the error of a list into a problem where the rest can still be read.
func (l *live) judge(kind Kind, namespace string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err): // clusterctl passes over a kind that is not served
		return nil
	case apierrors.IsForbidden(err):
		l.forbidden(kind.resource(), namespace, "")
		return nil
	}
	return readError(kind.String(), err)
}

// resource returns the kind's resource.
func (k Kind) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Plural}
}

// needsContent says whether the rules look at more than the metadata of a kind's objects.
func (l *live) needsContent(gk schema.GroupKind) bool {
	switch gk {
	case clusterKind, classKind, bindingKind, machineKind, providerKind:
		return true
	case secretKind, configMapKind:
		return false
	}
	return l.whole
}

// list reads the objects of a kind in a namespace page by page, or in all.
func (l *live) list(ctx context.Context, kind Kind, namespace string) error {
	if l.needsContent(kind.GroupKind) {
		client := l.objects.Resource(kind.resource()).Namespace(namespace)
		return l.pages(ctx, func(options metav1.ListOptions) (string, error) {
			list, err := client.List(ctx, options)
			if err != nil {
				return "", err
			}
			for i := range list.Items {
				l.add(FromUnstructured(&list.Items[i], manifest.Place{}))
			}
			return list.GetContinue(), nil
		})
	}
	client := l.metadata.Resource(kind.resource()).Namespace(namespace)
	return l.pages(ctx, func(options metav1.ListOptions) (string, error) {
		list, err := client.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			l.add(ofMetadata(kind.GroupVersionKind(), &list.Items[i]))
		}
		return list.GetContinue(), nil
	})
}

// GroupVersionKind returns the kind in the version that is stored.
func (k Kind) GroupVersionKind() schema.GroupVersionKind { return k.WithVersion(k.Version) }

// ofMetadata returns an object of which the metadata was read.
func ofMetadata(gvk schema.GroupVersionKind, m *metav1.PartialObjectMetadata) Object {
	return Object{
		Object: manifest.Object{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: m.Namespace, Name: m.Name},
		UID:    m.UID, Labels: m.Labels, Annotations: m.Annotations, Owners: m.OwnerReferences,
	}
}

// add adds an object to the world.
func (l *live) add(o Object) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.world.Objects = append(l.world.Objects, o)
}

// pages calls for one page after the other. A list whose pages have expired is an error as any other.
func (l *live) pages(ctx context.Context, page func(metav1.ListOptions) (string, error)) error {
	next := ""
	for {
		var err error
		if next, err = page(metav1.ListOptions{Limit: pageSize, Continue: next}); err != nil {
			return err
		}
		if next == "" || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// readClasses reads the ClusterClasses of other namespaces that Clusters name, and their templates.
func (l *live) readClasses(ctx context.Context) error {
	have := make(map[key]*Object, len(l.world.Objects))
	for i := range l.world.Objects {
		have[l.world.Objects[i].key()] = &l.world.Objects[i]
	}
	get := func(k key, version string) (*Object, error) {
		if o, ok := have[k]; ok {
			return o, nil
		}
		o, err := l.get(ctx, k, version)
		have[k] = o
		return o, err
	}
	for _, o := range slices.Clone(l.world.Objects) {
		if o.GroupKind() != clusterKind || l.space != "" && o.Namespace != l.space {
			continue
		}
		cluster, err := topology.Cluster(ctx, o.unstructured())
		if err != nil || !cluster.Spec.Topology.IsDefined() || cluster.GetClassKey().Namespace == l.space {
			continue // what is wrong with it, Discover tells
		}
		name := cluster.GetClassKey()
		class, err := get(key{GroupKind: classKind, namespace: name.Namespace, name: name.Name}, l.world.Kinds[classKind].Version)
		if err != nil {
			return err
		}
		if class == nil {
			continue
		}
		read, err := topology.Class(ctx, class.unstructured())
		if err != nil {
			continue
		}
		for _, r := range templatesOf(read) {
			gk := groupKind(r.APIVersion, r.Kind)
			version := strings.TrimPrefix(r.APIVersion, gk.Group+"/")
			if _, err := get(key{GroupKind: gk, namespace: name.Namespace, name: r.Name}, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// get reads one object by its name; nil is one that is not there, or that may not be read.
func (l *live) get(ctx context.Context, k key, version string) (*Object, error) {
	kind, ok := l.world.Kinds[k.GroupKind]
	if !ok {
		kind = Kind{GroupKind: k.GroupKind, Plural: pluralOf(k.GroupKind)}
	}
	kind.Version = version
	read, err := l.objects.Resource(kind.resource()).Namespace(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		l.forbidden(kind.resource(), k.namespace, "a Cluster uses a ClusterClass of that namespace")
		return nil, nil
	case err != nil:
		return nil, readError(kind.String(), err)
	}
	o := FromUnstructured(read, manifest.Place{})
	l.add(o)
	return &o, nil
}

// forbidden notes that a resource may not be read, with the rule that permits it.
func (l *live) forbidden(resource schema.GroupVersionResource, namespace, why string) {
	role := "ClusterRole"
	where := resource.GroupResource().String()
	if namespace != "" {
		role = "Role in the namespace " + namespace
		where += " in " + namespace
	}
	if why != "" {
		why = " (" + why + ")"
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.world.problem(where, "reading them is forbidden%s: give the user a %s with the rule {apiGroups: [%q], resources: [%q], verbs: [get, list]}",
		why, role, resource.Group, resource.Resource)
}

// readError types the error of a request.
func readError(what string, err error) error {
	var status apierrors.APIStatus
	var network net.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("reading %s: %w (%w)", what, ErrUnauthorized, err)
	case errors.As(err, &status), errors.Is(err, context.Canceled) && !errors.As(err, &network):
		return fmt.Errorf("reading %s: %w", what, err)
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("reading %s: %w: %w; check the address in the kubeconfig, the network, and that the cluster runs", what, ErrUnreachable, err)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}
