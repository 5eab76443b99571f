// Package indextest has a cache for benchmarks and for tests of the number of read objects: as in a manager's cache, a
// list by a field costs as much as its result, and not as much as all objects.
package indextest

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/index"
)

// Cache has a fixed list of objects. Its Client, if set, is for writes.
type Cache struct {
	client.Client
	// Read counts the objects that were returned.
	Read int

	byKey  map[reflect.Type]map[client.ObjectKey]client.Object
	byList map[string][]client.Object
}

// New returns a cache of objects, with the fields of package index and these.
func New(objects []client.Object, fields ...index.Field) *Cache {
	c := &Cache{byKey: map[reflect.Type]map[client.ObjectKey]client.Object{}, byList: map[string][]client.Object{}}
	fields = append(fields, index.Fields...)
	for _, object := range objects {
		kind := reflect.TypeOf(object)
		if c.byKey[kind] == nil {
			c.byKey[kind] = map[client.ObjectKey]client.Object{}
		}
		c.byKey[kind][client.ObjectKeyFromObject(object)] = object
		places := []string{""}
		for _, field := range fields {
			if reflect.TypeOf(field.Object) == kind {
				for _, value := range field.Values(object) {
					places = append(places, field.Name+"="+value)
				}
			}
		}
		for _, place := range places {
			for _, namespace := range []string{"", object.GetNamespace()}[:min(2, 1+len(object.GetNamespace()))] {
				key := where(kind.Elem().Name(), namespace, place)
				c.byList[key] = append(c.byList[key], object)
			}
		}
	}
	return c
}

func where(kind, namespace, place string) string {
	return fmt.Sprintf("%s/%s/%s", kind, namespace, place)
}

// Get implements client.Reader.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found, exists := c.byKey[reflect.TypeOf(into)][key]
	if !exists {
		return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(into).Elem().Name()}, key.Name)
	}
	c.Read++
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// List implements client.Reader. It supports namespaces, one field, and UnsafeDisableDeepCopy.
func (c *Cache) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	chosen := (&client.ListOptions{}).ApplyOptions(options)
	place := ""
	if chosen.FieldSelector != nil {
		place = chosen.FieldSelector.String()
	}
	name := reflect.TypeOf(list).Elem().Name()
	var found []runtime.Object
	for _, object := range c.byList[where(name[:len(name)-len("List")], chosen.Namespace, place)] {
		c.Read++
		if chosen.UnsafeDisableDeepCopy == nil || !*chosen.UnsafeDisableDeepCopy {
			found = append(found, object.DeepCopyObject())
			continue
		}
		found = append(found, object)
	}
	return meta.SetList(list, found)
}
