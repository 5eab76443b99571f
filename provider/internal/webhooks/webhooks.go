// Package webhooks sets defaults on the provider's objects and checks them, where the schema of a
// CRD can't: what must not change, what depends on the request, and what spans several fields.
//
// Each kind has a file. It holds functions from an object to what is wrong with it; validator makes
// an admission webhook of them.
package webhooks

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"sigs.k8s.io/cluster-api/util/topology"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Options are what webhooks need to know of the manager that they run in.
type Options struct {
	// ManagerNamespace is the namespace that the manager runs in. Secrets of identities are there by default.
	ManagerNamespace string
}

// SetupWithManager registers the webhooks of every kind.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	for _, setup := range []func() error{
		func() error { return register(mgr, libvirtClusterValidator(), LibvirtClusterDefaulter{}) },
		func() error { return register(mgr, libvirtClusterTemplateValidator(), nil) },
		func() error { return register(mgr, libvirtMachineValidator(), nil) },
		func() error { return register(mgr, libvirtMachineTemplateValidator(), nil) },
		func() error { return register(mgr, libvirtMachinePoolValidator(), nil) },
		func() error { return register(mgr, libvirtMachinePoolTemplateValidator(), nil) },
		func() error { return register(mgr, libvirtHostValidator(), LibvirtHostDefaulter{}) },
		func() error {
			return register(mgr, libvirtClusterIdentityValidator(), LibvirtClusterIdentityDefaulter{Namespace: options.ManagerNamespace})
		},
	} {
		if err := setup(); err != nil {
			return err
		}
	}
	return nil
}

// register registers the webhooks of one kind. A nil defaulter is for kinds whose defaults are all
// in their CRD.
func register[T client.Object](mgr ctrl.Manager, validator validator[T], defaulter admission.Defaulter[T]) error {
	builder := ctrl.NewWebhookManagedBy(mgr, validator.object).WithValidator(validator)
	if defaulter != nil {
		builder = builder.WithDefaulter(defaulter)
	}
	if err := builder.Complete(); err != nil {
		return fmt.Errorf("registering the webhooks of %s: %w", validator.kind, err)
	}
	return nil
}

// validator makes an admission webhook of functions that list what is wrong with an object.
type validator[T client.Object] struct {
	// kind is the kind of T, for messages.
	kind string
	// object is an empty T.
	object T
	// spec returns the part of an object that users write.
	spec func(T) any
	// always checks an object by itself, at creation and when its spec has changed.
	always func(T) field.ErrorList
	// onCreate, if any, checks what matters at creation only.
	onCreate func(T) field.ErrorList
	// onUpdate, if any, checks a change. It isn't called for the topology controller's dry runs.
	onUpdate func(before, after T) field.ErrorList
}

var _ admission.Validator[*infrav1.LibvirtCluster] = validator[*infrav1.LibvirtCluster]{}

// ValidateCreate checks a new object.
func (v validator[T]) ValidateCreate(_ context.Context, object T) (admission.Warnings, error) {
	errs := v.always(object)
	if v.onCreate != nil {
		errs = append(errs, v.onCreate(object)...)
	}
	return nil, v.invalid(object, errs)
}

// ValidateUpdate checks a changed object. One whose spec is as it was always passes: rules that a
// later version adds must not keep anybody from removing a finalizer.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if apiequality.Semantic.DeepEqual(v.spec(before), v.spec(after)) {
		return nil, nil
	}

	// The topology controller asks what a template would become, by a dry run on the template that is
	// there: refusing would keep it from seeing that it needs a new template.
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("reading the admission request from the context: %v", err))
	}
	errs := v.always(after)
	if v.onUpdate != nil && !topology.IsDryRunRequest(request, after) {
		errs = append(errs, v.onUpdate(before, after)...)
	}
	return nil, v.invalid(after, errs)
}

// ValidateDelete lets everything be deleted: what is still in use is kept by its finalizer.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v validator[T]) invalid(object T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(v.kind).GroupKind(), object.GetName(), errs)
}
