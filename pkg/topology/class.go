// Package topology runs the code of Cluster API's webhooks and topology controller offline, on ClusterClasses and
// Clusters.
package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // releases have classes of it
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/feature"
)

// ErrVersion means that this version of Cluster API does not convert the object's version.
var ErrVersion = errors.New("Cluster API does not convert this version")

// enableTopologies enables the feature gate without which the webhook of ClusterClasses refuses all.
var enableTopologies = sync.OnceValue(func() error {
	return feature.MutableGates.SetFromMap(map[string]bool{string(feature.ClusterTopology): true})
})

// Class reads a ClusterClass of v1beta1 or v1beta2. The error is ErrVersion, or that of a field with a wrong type.
func Class(ctx context.Context, o *unstructured.Unstructured) (*clusterv1.ClusterClass, error) {
	return asHub(ctx, o, conversion.ConvertClusterClassV1Beta1ToHub)
}

// Cluster reads a Cluster of v1beta1 or v1beta2. The errors are those of Class.
func Cluster(ctx context.Context, o *unstructured.Unstructured) (*clusterv1.Cluster, error) {
	return asHub(ctx, o, conversion.ConvertClusterV1Beta1ToHub)
}

// asHub reads an object of v1beta1 or v1beta2 as one of v1beta2.
func asHub[Old, Hub any](ctx context.Context, o *unstructured.Unstructured, convert func(context.Context, *Old, *Hub) error) (*Hub, error) {
	old, hub := new(Old), new(Hub)
	switch o.GroupVersionKind().GroupVersion() {
	case clusterv1.GroupVersion:
		return hub, read(o, hub)
	case clusterv1beta1.GroupVersion:
		if err := read(o, old); err != nil {
			return nil, err
		}
		if err := convert(ctx, old, hub); err != nil {
			return nil, fmt.Errorf("converting the %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return hub, nil
	}
	return nil, fmt.Errorf("%s %s: %w", o.GetAPIVersion(), o.GetName(), ErrVersion)
}

// read turns an object into its Go type.
func read(o *unstructured.Unstructured, typed any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
		return fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// Admit returns the reasons of Cluster API's webhook for refusing a new ClusterClass, with fields of v1beta2. The error
// means that the webhook could not judge the class.
//
// Source: Cluster API book, ClusterClass, "Writing a ClusterClass".
func Admit(ctx context.Context, class *clusterv1.ClusterClass) ([]metav1.StatusCause, error) {
	if err := enableTopologies(); err != nil {
		return nil, fmt.Errorf("opening the feature gate of ClusterClasses: %w", err)
	}
	class = class.DeepCopy()
	class.Namespace = cmp.Or(class.Namespace, "default") // clusterctl sets the user's namespace
	_, err := (&admission.ClusterClass{}).ValidateCreate(ctx, class)
	return problemsOf(class, err)
}

// problemsOf splits the error of the webhook into problems.
func problemsOf(class *clusterv1.ClusterClass, err error) ([]metav1.StatusCause, error) {
	if err == nil {
		return nil, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil, fmt.Errorf("validating the ClusterClass %s: %w", class.Name, err)
	}
	causes := status.Status().Details.Causes
	for i := range causes {
		causes[i].Field = strings.TrimSpace(causes[i].Field)
	}
	// The webhook iterates over maps.
	slices.SortStableFunc(causes, func(a, b metav1.StatusCause) int {
		return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return causes, nil
}
