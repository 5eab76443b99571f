package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/contract"
)

// poolKind is a kind of pool of this world only: spec.prefix is a network, spec.gateway an address of it, and spec.size
// the number of addresses after the gateway.
var poolKind = schema.GroupVersionKind{Group: "ipam.world.test", Version: "v1", Kind: "AddressPool"}

const addressFinalizer = "ipam.world.test/address"

// poolCRD returns the CRD of poolKind, named by the rules of the contract for IPAM ("Data Types").
func poolCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: contract.CalculateCRDName(poolKind.Group, poolKind.Kind)},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: poolKind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: poolKind.Kind, ListKind: poolKind.Kind + "List", Plural: "addresspools", Singular: "addresspool"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: poolKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
		}}
}

// Pool creates a pool of addresses, and returns the reference to it.
func (s *Scene) Pool(name, prefix, gateway string, size int64) ipamv1.IPPoolReference {
	s.t.Helper()
	pool := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"prefix": prefix, "gateway": gateway, "size": size}}}
	pool.SetGroupVersionKind(poolKind)
	pool.SetNamespace(s.Namespace)
	pool.SetName(name)
	s.Create(pool)
	return ipamv1.IPPoolReference{APIGroup: poolKind.Group, Kind: poolKind.Kind, Name: name}
}

// Claims lists the IPAddressClaims of the scene.
func (s *Scene) Claims() []ipamv1.IPAddressClaim {
	s.t.Helper()
	return list(s, &ipamv1.IPAddressClaimList{}).Items
}

// Given returns the allocated addresses of the scene by the names of their claims, sorted.
func (s *Scene) Given() map[string]string {
	s.t.Helper()
	given := map[string]string{}
	for _, address := range list(s, &ipamv1.IPAddressList{}).Items {
		given[address.Spec.ClaimRef.Name] = address.Spec.Address
	}
	return given
}

// ipamProvider allocates addresses of pools as described for an "IPAM Provider" in the contract for IPAM. It has no
// state in memory: the existing IPAddresses are the allocated ones.
type ipamProvider struct{ client.Client }

func (p *ipamProvider) SetupWithManager(_ context.Context, mgr ctrl.Manager, _ controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("ipam").For(&ipamv1.IPAddressClaim{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // no address is allocated twice
		Complete(p)
}

// Reconcile allocates the address of a claim, or releases it.
func (p *ipamProvider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &ipamv1.IPAddressClaim{}
	if err := p.Get(ctx, req.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if claim.Spec.PoolRef.APIGroup != poolKind.Group || claim.Spec.PoolRef.Kind != poolKind.Kind {
		return ctrl.Result{}, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.ClusterName}, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // "If the referenced cluster is not found, abort reconciliation"
	}
	if annotations.IsPaused(cluster, claim) {
		return ctrl.Result{RequeueAfter: poll}, nil
	}
	err := p.reconcile(ctx, claim)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: poll}, nil
	}
	return ctrl.Result{}, err
}

func (p *ipamProvider) reconcile(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	if !claim.DeletionTimestamp.IsZero() {
		if err := p.Get(ctx, client.ObjectKeyFromObject(address), address); err == nil {
			address.Finalizers = nil
			if err := errors.Join(p.Update(ctx, address), p.Delete(ctx, address)); err != nil {
				return err
			}
		}
		controllerutil.RemoveFinalizer(claim, addressFinalizer)
		return p.Update(ctx, claim)
	}
	if controllerutil.AddFinalizer(claim, addressFinalizer) {
		if err := p.Update(ctx, claim); err != nil {
			return err
		}
	}
	if claim.Status.AddressRef.Name != "" {
		return nil
	}
	reason, err := p.give(ctx, claim, address)
	if err != nil {
		return err
	}
	condition := metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionTrue, Reason: "Given"}
	if reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, "see the pool"
	} else {
		claim.Status.AddressRef.Name = address.Name
	}
	conditions.Set(claim, condition)
	if err := p.Status().Update(ctx, claim); err != nil || reason == "" {
		return err
	}
	return fmt.Errorf("no address for %s: %s", claim.Name, reason) // retried
}

// give creates the IPAddress of a claim, with the first free address. If there is none, it returns the reason for the
// condition.
func (p *ipamProvider) give(ctx context.Context, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) (string, error) {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(poolKind)
	if err := p.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.PoolRef.Name}, pool); err != nil {
		if apierrors.IsNotFound(err) {
			return ipamv1.IPAddressClaimReadyPoolNotReadyReason, nil
		}
		return "", err
	}
	text, _, _ := unstructured.NestedString(pool.Object, "spec", "prefix")
	gateway, _, _ := unstructured.NestedString(pool.Object, "spec", "gateway")
	size, _, _ := unstructured.NestedInt64(pool.Object, "spec", "size")
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return "", err
	}
	list := &ipamv1.IPAddressList{}
	if err := p.List(ctx, list, client.InNamespace(claim.Namespace)); err != nil {
		return "", err
	}
	next, left := netip.MustParseAddr(gateway).Next(), size
	for ; left > 0; next, left = next.Next(), left-1 {
		if !slices.ContainsFunc(list.Items, func(a ipamv1.IPAddress) bool { return a.Spec.Address == next.String() && a.Name != claim.Name }) {
			break
		}
	}
	if left == 0 {
		return ipamv1.IPAddressClaimReadyPoolExhaustedReason, nil
	}
	address.Finalizers = []string{ipamv1.GroupVersion.Group + "/protect-address"}
	address.Spec = ipamv1.IPAddressSpec{ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
		Address: next.String(), Prefix: ptr.To(int32(prefix.Bits())), Gateway: gateway} //nolint:gosec // at most 128
	if err := controllerutil.SetControllerReference(claim, address, p.Scheme()); err != nil {
		return "", err
	}
	if err := controllerutil.SetOwnerReference(pool, address, p.Scheme(), controllerutil.WithBlockOwnerDeletion(true)); err != nil {
		return "", err
	}
	return "", client.IgnoreAlreadyExists(p.Create(ctx, address))
}
