package libvirtmachinepool

import (
	"context"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lateCache is a manager's cache that is older than the API server, by a different time for each kind.
type lateCache struct {
	objects map[reflect.Type]map[client.ObjectKey]client.Object
	news    map[reflect.Type][]news
}

type news struct {
	key    client.ObjectKey
	object client.Object // nil when it is deleted
}

func newLateCache() *lateCache {
	return &lateCache{objects: map[reflect.Type]map[client.ObjectKey]client.Object{}, news: map[reflect.Type][]news{}}
}

// record adds an event that the cache receives later.
func (c *lateCache) record(object client.Object, gone bool) {
	kind, one := reflect.TypeOf(object), news{key: client.ObjectKeyFromObject(object)}
	if !gone {
		one.object = object.DeepCopyObject().(client.Object)
	}
	c.news[kind] = append(c.news[kind], one)
}

// receive makes the cache receive some of the events, or all of them if random is nil.
func (c *lateCache) receive(random *rand.Rand) {
	// Sorted, so that a seed always gives the same walk.
	kinds := slices.SortedFunc(maps.Keys(c.news), func(a, b reflect.Type) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range kinds {
		all := c.news[kind]
		many := len(all)
		if random != nil && random.IntN(4) > 0 {
			many = random.IntN(many + 1)
		}
		if c.objects[kind] == nil {
			c.objects[kind] = map[client.ObjectKey]client.Object{}
		}
		for _, one := range all[:many] {
			c.objects[kind][one.key] = one.object
			if one.object == nil {
				delete(c.objects[kind], one.key)
			}
		}
		c.news[kind] = all[many:]
	}
}

func (c *lateCache) Get(_ context.Context, _ client.WithWatch, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found, there := c.objects[reflect.TypeOf(into)][key]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(into).Elem().Name()}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List returns the cache's own objects, as the controller requests. The controller must not change them.
func (c *lateCache) List(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	chosen := (&client.ListOptions{}).ApplyOptions(options)
	if chosen.LabelSelector == nil {
		chosen.LabelSelector = labels.Everything()
	}
	var found []runtime.Object
	for kind, objects := range c.objects {
		if kind.Elem().Name()+"List" != reflect.TypeOf(list).Elem().Name() {
			continue
		}
		for key, object := range objects {
			if key.Namespace == chosen.Namespace && chosen.LabelSelector.Matches(labels.Set(object.GetLabels())) {
				found = append(found, object)
			}
		}
	}
	slices.SortFunc(found, func(a, b runtime.Object) int {
		return strings.Compare(a.(client.Object).GetName(), b.(client.Object).GetName())
	})
	return meta.SetList(list, found)
}
