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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// readObjects reads the objects of all kinds, several kinds at a time.
func (l *live) readObjects(ctx context.Context) error {
	// Before the rest: the Secrets of infrastructure providers' namespaces are read too.
	namespaces, err := l.readProviders(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requests)
	for _, gk := range slices.SortedFunc(maps.Keys(l.world.Kinds), longestFirst) {
		kind := l.world.Kinds[gk]
		switch {
		case gk == providerKind && l.namespace == "": // they have been read
		case gk == clusterKind:
			group.Go(func() error { return l.readClusters(ctx, kind) })
		default:
			group.Go(func() error { return l.readKind(ctx, kind, l.scope(kind)) })
		}
		if gk != secretKind || l.namespace == "" {
			continue
		}
		for _, namespace := range namespaces {
			if namespace != l.namespace {
				group.Go(func() error { return l.readKind(ctx, kind, namespace) })
			}
		}
	}
	return group.Wait()
}

// longestFirst orders kinds: pages of a kind come one after the other, so those of which there are most,
// and of which more than the metadata is read, must not be left to the end.
func longestFirst(a, b schema.GroupKind) int {
	rank := func(gk schema.GroupKind) int {
		if i := slices.Index([]schema.GroupKind{machineKind, clusterKind, secretKind}, gk); i >= 0 {
			return i
		}
		return 3
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a.String(), b.String()))
}

// scope returns the namespace in which a kind's objects are listed.
func (l *live) scope(kind Kind) string {
	if kind.ClusterScoped {
		return ""
	}
	return l.namespace
}

// readProviders reads clusterctl's inventory and returns the namespaces of infrastructure providers.
func (l *live) readProviders(ctx context.Context) ([]string, error) {
	kind := Kind{GroupKind: providerKind, Version: clusterctlv1.GroupVersion.Version, Plural: "providers"}
	if err := l.readKind(ctx, kind, ""); err != nil {
		return nil, err
	}
	return sets.List(l.world.providerNamespaces()), nil
}

// readClusters reads the Clusters of all namespaces, as those of others may use ClusterClasses of the
// one that is moved; or where that is forbidden, those of the namespace.
func (l *live) readClusters(ctx context.Context, kind Kind) error {
	err := l.list(ctx, kind, "")
	if l.namespace == "" || !apierrors.IsForbidden(err) {
		return l.listError(kind, "", err)
	}
	l.forbidden(kind.resource(), "", "Clusters of other namespaces may use ClusterClasses of this one, which are not deleted then")
	return l.readKind(ctx, kind, l.namespace)
}

// readKind reads the objects of a kind.
func (l *live) readKind(ctx context.Context, kind Kind, namespace string) error {
	return l.listError(kind, namespace, l.list(ctx, kind, namespace))
}

// listError turns the error of a list into a problem where the rest can still be read.
func (l *live) listError(kind Kind, namespace string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err): // clusterctl ignores a kind that is not served
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

// list reads the objects of a kind in a namespace page by page, or in all. Of kinds of which no rule reads
// more, it reads the metadata.
func (l *live) list(ctx context.Context, kind Kind, namespace string) error {
	_, read := keptOfKinds[kind.Kind]
	whole := l.whole || kind.ClusterScoped && kind.MoveHierarchy // these may name Secrets that belong to the move
	if kind.GroupKind == secretKind || kind.GroupKind == configMapKind || !whole && !read {
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
	client := l.objects.Resource(kind.resource()).Namespace(namespace)
	return l.pages(ctx, func(options metav1.ListOptions) (string, error) {
		list, err := client.List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			o := FromUnstructured(&list.Items[i], manifest.Place{})
			if !whole {
				o.dropUnread()
			}
			l.add(o)
		}
		return list.GetContinue(), nil
	})
}

// GroupVersionKind returns the kind in the version that is stored.
func (k Kind) GroupVersionKind() schema.GroupVersionKind { return k.WithVersion(k.Version) }

// ofMetadata returns an object of which the metadata was read.
func ofMetadata(gvk schema.GroupVersionKind, m *metav1.PartialObjectMetadata) *Object {
	return &Object{
		Object: manifest.Object{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: m.Namespace, Name: m.Name},
		UID:    m.UID, Labels: m.Labels, Annotations: m.Annotations, Owners: m.OwnerReferences,
	}
}

// add adds an object to the world.
func (l *live) add(o *Object) {
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
