// Package certificates implements the parts of cert-manager that providers of Cluster API need: it issues the Secrets
// of Certificates with a self-signed Issuer, and writes the authority into webhooks and CRDs that request it.
package certificates

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
)

// Manifest is installed as cert-manager by clusterctl: its namespace, and the supported kinds without schemas.
//
//go:embed cert-manager.yaml
var Manifest []byte

var (
	certificateKind = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}
	issuerKind      = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"}
)

const certificatesCRD = "certificates.cert-manager.io"

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// SetupWithManager adds the controllers to a manager, whose scheme must have CRDs and webhook configurations. The kinds
// of cert-manager may be installed later.
func SetupWithManager(mgr ctrl.Manager) error {
	if err := (&starter{manager: mgr}).setup(mgr); err != nil {
		return err
	}
	return setupInjectors(mgr)
}

// starter adds the controller of Certificates when their CRD exists: watching a missing kind fails.
type starter struct {
	manager ctrl.Manager
	started bool
}

func (s *starter) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("certificates-crd").For(&apiextensionsv1.CustomResourceDefinition{}).Complete(s)
}

// Reconcile reads the CRD of Certificates. It has one worker, so that the controller is added once.
func (s *starter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if s.started || request.Name != certificatesCRD {
		return ctrl.Result{}, nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := s.manager.GetClient().Get(ctx, request.NamespacedName, &crd); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if !established {
		return ctrl.Result{}, nil
	}
	s.started = true
	i := &issuer{client: s.manager.GetClient()}
	return ctrl.Result{}, ctrl.NewControllerManagedBy(s.manager).Named("certificates").
		For(newObject(certificateKind)).Owns(&corev1.Secret{}).
		Watches(newObject(issuerKind), handler.EnqueueRequestsFromMapFunc(i.ofNamespace)).
		Complete(i)
}

// issuer issues the Secrets of Certificates.
type issuer struct {
	client client.Client
}

// ofNamespace returns requests for the Certificates in the namespace of an Issuer.
func (i *issuer) ofNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(certificateKind.GroupVersion().WithKind("CertificateList"))
	if err := i.client.List(ctx, list, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "listing Certificates")
		return nil
	}
	var requests []reconcile.Request
	for n := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[n])})
	}
	return requests
}

// Reconcile issues the Secret of a Certificate if it doesn't exist.
func (i *issuer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	certificate := newObject(certificateKind)
	if err := i.client.Get(ctx, request.NamespacedName, certificate); err != nil || !certificate.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ready, message := false, ""
	switch complaint, err := i.complaint(ctx, certificate); {
	case err != nil:
		return ctrl.Result{}, err
	case complaint != "":
		message = complaint
	default:
		if err := i.issue(ctx, certificate); err != nil {
			return ctrl.Result{}, err
		}
		ready, message = true, "Certificate is up to date and has not expired"
	}
	return ctrl.Result{}, i.setReady(ctx, certificate, ready, message)
}

// complaint returns why a Certificate can't be issued, or "".
func (i *issuer) complaint(ctx context.Context, certificate *unstructured.Unstructured) (string, error) {
	secretName, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if secretName == "" {
		return "spec.secretName is empty", nil
	}
	name, _, _ := unstructured.NestedString(certificate.Object, "spec", "issuerRef", "name")
	issuer := newObject(issuerKind)
	err := i.client.Get(ctx, types.NamespacedName{Namespace: certificate.GetNamespace(), Name: name}, issuer)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("there is no Issuer %q", name), nil
	}
	if err != nil {
		return "", err
	}
	if _, ok, _ := unstructured.NestedMap(issuer.Object, "spec", "selfSigned"); !ok {
		return fmt.Sprintf("the Issuer %q isn't selfSigned, the only type that the testbed supports", name), nil
	}
	return "", nil
}

// issue creates the Secret of a Certificate, with its own authority.
func (i *issuer) issue(ctx context.Context, certificate *unstructured.Unstructured) error {
	secretName, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	key := types.NamespacedName{Namespace: certificate.GetNamespace(), Name: secretName}
	var found corev1.Secret
	if err := i.client.Get(ctx, key, &found); !apierrors.IsNotFound(err) {
		return err
	}
	names, _, err := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	if err != nil {
		return fmt.Errorf("the Certificate %s: %w", key, err)
	}
	signer, err := authority.New(certificate.GetName())
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := signer.Issue(authority.Request{CommonName: certificate.GetName(), Names: names})
	if err != nil {
		return err
	}
	yes := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: certificateKind.GroupVersion().String(), Kind: certificateKind.Kind,
			Name: certificate.GetName(), UID: certificate.GetUID(), Controller: &yes,
		}}},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certPEM, corev1.TLSPrivateKeyKey: keyPEM, corev1.ServiceAccountRootCAKey: signer.PEM()},
	}
	if err := i.client.Create(ctx, secret); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// setReady writes the Ready condition of a Certificate.
func (i *issuer) setReady(ctx context.Context, certificate *unstructured.Unstructured, ready bool, message string) error {
	status := map[bool]string{true: "True", false: "False"}[ready]
	conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
	if len(conditions) == 1 {
		if last, ok := conditions[0].(map[string]any); ok && last["status"] == status && last["message"] == message {
			return nil
		}
	}
	before := certificate.DeepCopy()
	condition := map[string]any{
		"type": "Ready", "status": status, "reason": map[bool]string{true: "Ready", false: "NotReady"}[ready], "message": message,
		"lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
	}
	if err := unstructured.SetNestedSlice(certificate.Object, []any{condition}, "status", "conditions"); err != nil {
		return err
	}
	return client.IgnoreNotFound(i.client.Status().Patch(ctx, certificate, client.MergeFrom(before)))
}
