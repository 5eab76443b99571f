package certificates

import (
	"bytes"
	"context"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// injectAnnotation requests the authority of a Certificate, by namespace and name
// (https://cert-manager.io/docs/concepts/ca-injector/).
const injectAnnotation = "cert-manager.io/inject-ca-from"

// injector writes authorities into objects of one kind.
type injector struct {
	client  client.Client
	newObj  func() client.Object
	newList func() client.ObjectList
	// bundles are the fields of an object for an authority.
	bundles func(client.Object) []*[]byte
}

// injectors returns an injector for each kind, by the names of their controllers.
func injectors(c client.Client) map[string]*injector {
	all := map[string]*injector{
		"inject-validating": {
			newObj:  func() client.Object { return &admissionv1.ValidatingWebhookConfiguration{} },
			newList: func() client.ObjectList { return &admissionv1.ValidatingWebhookConfigurationList{} },
			bundles: func(object client.Object) (places []*[]byte) {
				webhooks := object.(*admissionv1.ValidatingWebhookConfiguration).Webhooks
				for i := range webhooks {
					places = append(places, &webhooks[i].ClientConfig.CABundle)
				}
				return places
			},
		},
		"inject-mutating": {
			newObj:  func() client.Object { return &admissionv1.MutatingWebhookConfiguration{} },
			newList: func() client.ObjectList { return &admissionv1.MutatingWebhookConfigurationList{} },
			bundles: func(object client.Object) (places []*[]byte) {
				webhooks := object.(*admissionv1.MutatingWebhookConfiguration).Webhooks
				for i := range webhooks {
					places = append(places, &webhooks[i].ClientConfig.CABundle)
				}
				return places
			},
		},
		"inject-crds": {
			newObj:  func() client.Object { return &apiextensionsv1.CustomResourceDefinition{} },
			newList: func() client.ObjectList { return &apiextensionsv1.CustomResourceDefinitionList{} },
			bundles: func(object client.Object) []*[]byte {
				conversion := object.(*apiextensionsv1.CustomResourceDefinition).Spec.Conversion
				if conversion == nil || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
					return nil
				}
				return []*[]byte{&conversion.Webhook.ClientConfig.CABundle}
			},
		},
	}
	for _, i := range all {
		i.client = c
	}
	return all
}

func setupInjectors(mgr ctrl.Manager) error {
	for name, i := range injectors(mgr.GetClient()) {
		err := ctrl.NewControllerManagedBy(mgr).Named(name).For(i.newObj()).
			Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(i.requestsFor)).Complete(i)
		if err != nil {
			return err
		}
	}
	return nil
}

// requestsFor returns requests for the objects that request the authority in a Secret.
func (i *injector) requestsFor(ctx context.Context, secret client.Object) []reconcile.Request {
	certificate := certificateOf(secret)
	if certificate == "" {
		return nil
	}
	list := i.newList()
	if err := i.client.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing objects that request an authority")
		return nil
	}
	var requests []reconcile.Request
	err := meta.EachListItem(list, func(item runtime.Object) error {
		if object := item.(client.Object); object.GetAnnotations()[injectAnnotation] == certificate {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing objects that request an authority")
	}
	return requests
}

// certificateOf returns the namespace and the name of a Secret's Certificate, or "".
func certificateOf(secret client.Object) string {
	for _, owner := range secret.GetOwnerReferences() {
		if owner.Kind == certificateKind.Kind && owner.APIVersion == certificateKind.GroupVersion().String() {
			return secret.GetNamespace() + "/" + owner.Name
		}
	}
	return ""
}

// Reconcile writes the authority into an object that requests one.
func (i *injector) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := i.newObj()
	if err := i.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	namespace, name, requested := strings.Cut(object.GetAnnotations()[injectAnnotation], "/")
	if !requested {
		return ctrl.Result{}, nil
	}
	var secrets corev1.SecretList
	if err := i.client.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return ctrl.Result{}, err
	}
	var authority []byte
	for n := range secrets.Items {
		if certificateOf(&secrets.Items[n]) == (types.NamespacedName{Namespace: namespace, Name: name}).String() {
			authority = secrets.Items[n].Data[corev1.ServiceAccountRootCAKey]
		}
	}
	if len(authority) == 0 {
		return ctrl.Result{}, nil // the Secret triggers the next reconcile
	}
	before := object.DeepCopyObject().(client.Object)
	changed := false
	for _, place := range i.bundles(object) {
		if !bytes.Equal(*place, authority) {
			*place, changed = authority, true
		}
	}
	if !changed {
		return ctrl.Result{}, nil
	}
	// A list of webhooks is patched as a whole, so the patch must fail if another writer has changed it.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return ctrl.Result{}, client.IgnoreNotFound(i.client.Patch(ctx, object, patch))
}
