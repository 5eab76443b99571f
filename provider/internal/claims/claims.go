// Package claims claims IP addresses from the pools of IPAM providers.
//
// It implements "Infrastructure Provider" of Cluster API's contract for IPAM
// (docs/book/src/developer/providers/contracts/ipam.md). A claim belongs to one object, which is its controller, so
// that `clusterctl move` moves it and the garbage collector deletes it.
package claims

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/outcome"
)

// Claimer claims addresses for one object.
type Claimer struct {
	// Client reads and writes. Its reads may come from a cache that watches IPAddressClaims and IPAddresses.
	Client client.Client
	// APIReader reads from the API server itself.
	APIReader client.Reader
	// Owner is the object that needs the addresses. The Client's scheme has its kind.
	Owner client.Object
	// Cluster is the name of the Cluster that Owner belongs to.
	Cluster string
}

// NotGivenError is the reason why a claim has no address.
type NotGivenError struct {
	// Claim is the name of the IPAddressClaim.
	Claim string
	// Failed says that a user must act. Otherwise the IPAM provider allocates the address.
	Failed bool
	// Cause is the problem, or what the claim waits for.
	Cause string
}

// Error implements error.
func (e *NotGivenError) Error() string { return fmt.Sprintf("IPAddressClaim %s: %s", e.Claim, e.Cause) }

// Ensure returns the address of a claim, and creates the claim if it doesn't exist. Without an address the error is a
// *NotGivenError: wait for a change of the claim or its IPAddress. Other errors are from the API server.
func (c Claimer) Ensure(ctx context.Context, name string, pool ipamv1.IPPoolReference) (Address, error) {
	return c.read(ctx, name, pool, func() error { return c.create(ctx, name, pool) })
}

// Find is like Ensure, but creates no claim: the owner can't get another address any more.
func (c Claimer) Find(ctx context.Context, name string, pool ipamv1.IPPoolReference) (Address, error) {
	return c.read(ctx, name, pool, func() error {
		return &NotGivenError{Claim: name, Failed: true, Cause: "it was deleted while its address is in use, and the pool may allocate the address again"}
	})
}

// Release deletes the owner's claims with the given names, and returns the names of those that still exist. It reads
// from the API server, so that it doesn't miss a new claim.
func (c Claimer) Release(ctx context.Context, names []string) (left []string, err error) {
	for _, name := range names {
		claim := &ipamv1.IPAddressClaim{}
		err := c.APIReader.Get(ctx, client.ObjectKey{Namespace: c.Owner.GetNamespace(), Name: name}, claim)
		if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(claim, c.Owner) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading IPAddressClaim %s: %w", name, err)
		}
		if claim.DeletionTimestamp.IsZero() {
			err := c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("deleting IPAddressClaim %s: %w", name, err)
			}
		}
		left = append(left, name)
	}
	return left, nil
}

// read returns the address of a claim, or the error of missing if the claim doesn't exist.
func (c Claimer) read(ctx context.Context, name string, pool ipamv1.IPPoolReference, missing func() error) (Address, error) {
	claim := &ipamv1.IPAddressClaim{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Owner.GetNamespace(), Name: name}, claim)
	if apierrors.IsNotFound(err) {
		return Address{}, missing()
	}
	if err != nil {
		return Address{}, fmt.Errorf("reading IPAddressClaim %s: %w", name, err)
	}
	return c.given(ctx, claim, pool)
}

// create creates a claim. The error is never nil, because a new claim has no address.
func (c Claimer) create(ctx context.Context, name string, pool ipamv1.IPPoolReference) error {
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Owner.GetNamespace(), Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: c.Cluster}},
		Spec:       ipamv1.IPAddressClaimSpec{ClusterName: c.Cluster, PoolRef: pool},
	}
	if filter, filtered := c.Owner.GetLabels()[clusterv1.WatchLabel]; filtered {
		claim.Labels[clusterv1.WatchLabel] = filter // an IPAM provider may ignore claims without it
	}
	if err := controllerutil.SetControllerReference(c.Owner, claim, c.Client.Scheme()); err != nil {
		return fmt.Errorf("preparing IPAddressClaim %s: %w", name, err)
	}
	if err := c.Client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) { // another reconcile created it
		return fmt.Errorf("creating IPAddressClaim %s: %w", name, err)
	}
	return waitingFor(name, pool)
}

func waitingFor(name string, pool ipamv1.IPPoolReference) *NotGivenError {
	return &NotGivenError{Claim: name, Cause: fmt.Sprintf("waiting for the IPAM provider to allocate an address of %s %s (%s)", pool.Kind, pool.Name, pool.APIGroup)}
}

// adopt sets the owner of a claim that has lost its owner reference.
func (c Claimer) adopt(ctx context.Context, claim *ipamv1.IPAddressClaim, pool ipamv1.IPPoolReference) error {
	if metav1.GetControllerOf(claim) != nil || claim.Labels[clusterv1.ClusterNameLabel] != c.Cluster || claim.Spec.PoolRef != pool || !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	before := claim.DeepCopy()
	err := controllerutil.SetControllerReference(c.Owner, claim, c.Client.Scheme())
	if err == nil {
		err = c.Client.Patch(ctx, claim, outcome.Over(before))
	}
	return outcome.Wrap(err, "setting the owner of IPAddressClaim "+claim.Name)
}

// given returns the address of a claim.
func (c Claimer) given(ctx context.Context, claim *ipamv1.IPAddressClaim, pool ipamv1.IPPoolReference) (Address, error) {
	if err := c.adopt(ctx, claim, pool); err != nil {
		return Address{}, err
	}
	failed := func(cause string, values ...any) (Address, error) {
		return Address{}, &NotGivenError{Claim: claim.Name, Failed: true, Cause: fmt.Sprintf(cause, values...)}
	}
	switch owner := metav1.GetControllerOf(claim); {
	case !metav1.IsControlledBy(claim, c.Owner) && owner != nil:
		return failed("it is owned by %s %s (UID %s): delete the claim if that object is gone", owner.Kind, owner.Name, owner.UID)
	case owner == nil:
		return failed("it has no owner: delete it")
	case claim.Spec.PoolRef != pool:
		return failed("it is for %s %s (%s), and not for %s %s (%s): delete it", claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name,
			claim.Spec.PoolRef.APIGroup, pool.Kind, pool.Name, pool.APIGroup)
	case !claim.DeletionTimestamp.IsZero():
		return failed("it is being deleted, and is created again afterwards")
	case claim.Status.AddressRef.Name == "":
		return Address{}, notGiven(claim, pool)
	}
	object := &ipamv1.IPAddress{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Status.AddressRef.Name}, object)
	if apierrors.IsNotFound(err) {
		return Address{}, &NotGivenError{Claim: claim.Name, Cause: fmt.Sprintf("waiting for IPAddress %s, which its status names", claim.Status.AddressRef.Name)}
	}
	if err != nil {
		return Address{}, fmt.Errorf("reading IPAddress %s: %w", claim.Status.AddressRef.Name, err)
	}
	address, err := readAddress(object, claim.Name)
	if err != nil {
		return failed("its IPAddress %s: %s", object.Name, err.Error())
	}
	return address, nil
}

// notGiven returns the reason of the IPAM provider for a claim without an address.
func notGiven(claim *ipamv1.IPAddressClaim, pool ipamv1.IPPoolReference) *NotGivenError {
	ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return waitingFor(claim.Name, pool)
	}
	return &NotGivenError{Claim: claim.Name, Failed: true,
		Cause: fmt.Sprintf("no address of %s %s (%s): %s: %s", pool.Kind, pool.Name, pool.APIGroup, ready.Reason, ready.Message)}
}

// NotGiven returns the NotGivenError in an error, or nil.
func NotGiven(err error) *NotGivenError {
	var notGiven *NotGivenError
	if errors.As(err, &notGiven) {
		return notGiven
	}
	return nil
}

// ToOwner maps IPAddressClaims and IPAddresses to their owners of a kind.
func ToOwner(reader client.Reader, of schema.GroupKind) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []ctrl.Request {
		if address, ok := object.(*ipamv1.IPAddress); ok {
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

// Address is an allocated address.
type Address struct {
	// Prefix is the address, with the length of its network.
	netip.Prefix
	// Gateway of the network. It is invalid if there is none.
	Gateway netip.Addr
}

// readAddress validates the IPAddress of a claim: it is written into the guest's network configuration.
func readAddress(object *ipamv1.IPAddress, claim string) (Address, error) {
	if object.Spec.ClaimRef.Name != claim {
		return Address{}, fmt.Errorf("spec.claimRef.name is %q", object.Spec.ClaimRef.Name)
	}
	address, err := readAddr("spec.address", object.Spec.Address)
	if err != nil {
		return Address{}, err
	}
	if object.Spec.Prefix == nil {
		return Address{}, errors.New("spec.prefix is missing")
	}
	prefix := netip.PrefixFrom(address, int(ptr.Deref(object.Spec.Prefix, 0)))
	if !prefix.IsValid() {
		return Address{}, fmt.Errorf("spec.prefix is %d, and spec.address %s has %d bits", *object.Spec.Prefix, address, address.BitLen())
	}
	given := Address{Prefix: prefix}
	if object.Spec.Gateway == "" {
		return given, nil
	}
	if given.Gateway, err = readAddr("spec.gateway", object.Spec.Gateway); err != nil {
		return Address{}, err
	}
	if given.Gateway.Is4() != address.Is4() {
		return Address{}, fmt.Errorf("spec.gateway %s isn't of the address family of spec.address %s", given.Gateway, address)
	}
	return given, nil
}

func readAddr(field, text string) (netip.Addr, error) {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || address.IsUnspecified() || address.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%s %q isn't the IP address of one machine", field, text)
	}
	return address.Unmap(), nil
}
