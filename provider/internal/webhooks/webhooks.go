// Package webhooks sets defaults and validates what the schema of a CRD can't: immutable fields, rules that depend on
// the request, and rules for several fields.
//
// Each kind has a file with functions that return the errors of an object. validator makes an admission webhook of
// them.
package webhooks

import (
	"context"
	"fmt"
	"reflect"

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

// register registers the webhooks of one kind. defaulter is nil for kinds whose defaults are all in their CRD.
func register[T client.Object](mgr ctrl.Manager, validator validator[T], defaulter admission.Defaulter[T]) error {
	object, _ := reflect.New(kindOf[T]()).Interface().(T)
	builder := ctrl.NewWebhookManagedBy(mgr, object).WithValidator(validator)
	if defaulter != nil {
		builder = builder.WithDefaulter(defaulter)
	}
	if err := builder.Complete(); err != nil {
		return fmt.Errorf("registering the webhooks of %s: %w", kindOf[T]().Name(), err)
	}
	return nil
}

// validator is an admission webhook from functions that return the errors of an object.
type validator[T client.Object] struct {
	// always validates an object at creation and after a change of its spec.
	always func(T) field.ErrorList
	// onCreate, if any, returns why no object can be created.
	onCreate func() field.ErrorList
	// onUpdate, if any, validates a change. It isn't called for dry runs of the topology controller.
	onUpdate func(before, after T) field.ErrorList
}

var _ admission.Validator[*infrav1.LibvirtCluster] = validator[*infrav1.LibvirtCluster]{}

// ValidateCreate checks a new object.
func (v validator[T]) ValidateCreate(_ context.Context, object T) (admission.Warnings, error) {
	errs := v.always(object)
	if v.onCreate != nil {
		errs = append(errs, v.onCreate()...)
	}
	return nil, v.invalid(object, errs)
}

// ValidateUpdate checks a changed object. An unchanged spec is always valid: new rules of a later version must not
// prevent removing a finalizer.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if apiequality.Semantic.DeepEqual(specOf(before), specOf(after)) {
		return nil, nil
	}

	// The topology controller computes changes of a template by a dry run on the existing one. A refusal would hide
	// from it that it needs a new template.
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

// kindOf returns the struct of a kind, whose objects are pointers to it.
func kindOf[T client.Object]() reflect.Type { return reflect.TypeFor[T]().Elem() }

// specOf returns the spec of an object.
func specOf(object client.Object) any {
	return reflect.ValueOf(object).Elem().FieldByName("Spec").Interface()
}

func (v validator[T]) invalid(object T, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kindOf[T]().Name()).GroupKind(), object.GetName(), errs)
}

// Messages for changes of immutable fields.
const (
	replaceMachine  = "is immutable: the machine has to be replaced, by a new template in its owner"
	replaceTemplate = "is immutable: create a new template with the change, and refer to that one"
	setOnce         = "is immutable once set"
)

// unchanged refuses a change of a field.
func unchanged[T any](path *field.Path, before, after T, message string) field.ErrorList {
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, message)}
}

// unchangedOnceSet refuses a change of a field that already has a value.
func unchangedOnceSet[T comparable](path *field.Path, before, after T) field.ErrorList {
	var unset T
	if before == unset || before == after {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, setOnce)}
}
