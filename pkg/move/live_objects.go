package move

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// readObjects reads the objects of all kinds, several kinds at a time.
func (l *live) readObjects(ctx context.Context) error {
	// clusterctl's inventory comes first: it names the namespaces of infrastructure providers, whose Secrets are read too.
	inventory := Kind{GroupKind: providerKind, Version: clusterctlv1.GroupVersion.Version, Plural: "providers"}
	if err := l.readKind(ctx, inventory, ""); err != nil {
		return err
	}
	secretNamespaces := l.world.providerNamespaces().Insert(l.namespace)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requests)
	for _, gk := range slices.SortedFunc(maps.Keys(l.world.Kinds), longestFirst) {
		kind := l.world.Kinds[gk]
		namespaces := []string{l.namespace}
		switch {
		case gk == providerKind && l.namespace == "":
			continue // the inventory, which has been read
		case gk == clusterKind, kind.ClusterScoped:
			namespaces = []string{""}
		case gk == secretKind && l.namespace != "":
			namespaces = sets.List(secretNamespaces)
		}
		for _, namespace := range namespaces {
			group.Go(func() error { return l.readKind(ctx, kind, namespace) })
		}
	}
	return group.Wait()
}

// longestFirst orders kinds for reading. Pages of one kind are read one after the other, so the kinds with the most
// objects, and those that are read completely, must not be last.
func longestFirst(a, b schema.GroupKind) int {
	rank := func(gk schema.GroupKind) int {
		if i := slices.Index([]schema.GroupKind{machineKind, clusterKind, secretKind}, gk); i >= 0 {
			return i
		}
		return 3
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a.String(), b.String()))
}

// readKind reads the objects of a kind in a namespace; "" means all. A forbidden resource becomes a problem. A kind that
// is not served is ignored, as clusterctl does.
func (l *live) readKind(ctx context.Context, kind Kind, namespace string) error {
	err := l.list(ctx, kind, namespace)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err) && kind.GroupKind == clusterKind && namespace != l.namespace:
		l.forbidden(kind.resource(), "", "Clusters of other namespaces may use ClusterClasses of this one, which are not deleted then")
		return l.readKind(ctx, kind, l.namespace)
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

// list adds the objects of a kind in a namespace; "" means all. It reads only the metadata of kinds of which no rule
// reads more.
func (l *live) list(ctx context.Context, kind Kind, namespace string) error {
	_, read := keptOfKinds[kind.Kind]
	whole := l.whole || kind.ClusterScoped && kind.MoveHierarchy // they may name Secrets that belong to the move
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return l.objects.Resource(kind.resource()).Namespace(namespace).List(ctx, options)
	}
	if kind.GroupKind == secretKind || kind.GroupKind == configMapKind || !whole && !read {
		page = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return l.metadata.Resource(kind.resource()).Namespace(namespace).List(ctx, options)
		}
	}
	pages := &pager.ListPager{PageSize: pageSize, PageFn: page}
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		switch item := item.(type) {
		case *metav1.PartialObjectMetadata:
			l.add(&Object{
				Object: manifest.Object{APIVersion: kind.resource().GroupVersion().String(), Kind: kind.Kind, Namespace: item.Namespace, Name: item.Name},
				UID:    item.UID, Labels: item.Labels, Annotations: item.Annotations, Owners: item.OwnerReferences,
			})
		case *unstructured.Unstructured:
			o := FromUnstructured(item, manifest.Place{})
			if !whole {
				o.dropUnread()
			}
			l.add(o)
		}
		return nil
	})
}

// add adds an object to the world.
func (l *live) add(o *Object) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.world.Objects = append(l.world.Objects, o)
}
