package claims

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// ToOwner maps IPAddressClaims and IPAddresses to the objects of a kind that they are for. reader, which
// reads claims, may be a cache: a claim that it doesn't have so far comes by itself.
func ToOwner(reader client.Reader, of schema.GroupKind) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []ctrl.Request {
		if address, is := object.(*ipamv1.IPAddress); is {
			claim := &ipamv1.IPAddressClaim{}
			if err := reader.Get(ctx, client.ObjectKey{Namespace: address.Namespace, Name: address.Spec.ClaimRef.Name}, claim); err != nil {
				if client.IgnoreNotFound(err) != nil {
					ctrl.LoggerFrom(ctx).Error(err, "Reading an IPAddressClaim")
				}
				return nil
			}
			object = claim
		}
		owner := metav1.GetControllerOf(object)
		if owner == nil || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() != of {
			return nil
		}
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: owner.Name}}}
	}
}
