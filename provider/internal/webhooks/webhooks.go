// Package webhooks sets defaults and validates what the schema of a CRD can't: immutable fields, rules that depend on
// the request, and rules for several fields.
//
// Each kind has a file with functions that return the errors of an object. validator makes an admission webhook of
// them.
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

// Options has the properties of the manager that webhooks need.
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

// validator is an admission webhook from functions that return the errors of an object.
type validator[T client.Object] struct {
	// kind is the kind of T, for messages.
	kind string
	// object is an empty T.
	object T
	// spec returns the spec of an object.
	spec func(T) any
	// always validates an object at creation and after a change of its spec.
	always func(T) field.ErrorList
	// onCreate, if any, validates at creation only.
	onCreate func(T) field.ErrorList
	// onUpdate, if any, validates a change. It isn't called for dry runs of the topology controller.
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

// ValidateUpdate checks a changed object. An unchanged spec is always valid: new rules of a later version must not
// prevent removing a finalizer.
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

// ValidateDelete allows all deletions: finalizers keep objects that are in use.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v validator[T]) invalid(object T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(v.kind).GroupKind(), object.GetName(), errs)
}
