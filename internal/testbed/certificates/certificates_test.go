package certificates

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newClient(g *WithT, objects ...client.Object) client.Client {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, admissionv1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	scheme.AddKnownTypeWithName(certificateKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(issuerKind, &unstructured.Unstructured{})
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(newObject(certificateKind)).WithObjects(objects...).Build()
}

var key = client.ObjectKey{Namespace: "system", Name: "serving"}

func newCertificate(spec map[string]any) *unstructured.Unstructured {
	object := newObject(certificateKind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	object.SetUID("certificate")
	object.Object["spec"] = spec
	return object
}

func newIssuer(spec map[string]any) *unstructured.Unstructured {
	object := newObject(issuerKind)
	object.SetNamespace(key.Namespace)
	object.SetName("issuer")
	object.Object["spec"] = spec
	return object
}

var (
	requestedSpec = map[string]any{"secretName": "tls", "dnsNames": []any{"webhook.system.svc"}, "issuerRef": map[string]any{"name": "issuer"}}
	selfSigned    = map[string]any{"selfSigned": map[string]any{}}
)

// TestIssue checks that a Certificate gets one Secret with a certificate for its names, or a condition with the
// problem.
func TestIssue(t *testing.T) {
	tests := []struct {
		name    string
		objects []client.Object
		message string
	}{
		{"complete", []client.Object{newCertificate(requestedSpec), newIssuer(selfSigned)}, ""},
		{"no issuer", []client.Object{newCertificate(requestedSpec)}, `there is no Issuer "issuer"`},
		{"another issuer", []client.Object{newCertificate(requestedSpec), newIssuer(map[string]any{"acme": map[string]any{}})}, "isn't selfSigned"},
		{"no secret", []client.Object{newCertificate(map[string]any{}), newIssuer(selfSigned)}, "spec.secretName is empty"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			ctx := context.Background()
			c := newClient(g, test.objects...)
			i := &issuer{client: c}
			_, err := i.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			g.Expect(err).ToNot(HaveOccurred())
			status, message := ready(ctx, g, c)
			var secret corev1.Secret
			err = c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "tls"}, &secret)
			if test.message != "" {
				g.Expect(status).To(Equal("False"))
				g.Expect(message).To(ContainSubstring(test.message))
				g.Expect(err).To(MatchError(apierrors.IsNotFound, "not found"))
				return
			}
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(status).To(Equal("True"))
			g.Expect(certificateOf(&secret)).To(Equal("system/serving"))
			parsed, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(parsed[0].DNSNames).To(ConsistOf("webhook.system.svc"))
			authority, err := cert.ParseCertsPEM(secret.Data[corev1.ServiceAccountRootCAKey])
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(parsed[0].CheckSignatureFrom(authority[0])).To(Succeed())

			_, err = i.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			g.Expect(err).ToNot(HaveOccurred())
			var again corev1.Secret
			g.Expect(c.Get(ctx, client.ObjectKeyFromObject(&secret), &again)).To(Succeed())
			g.Expect(again.ResourceVersion).To(Equal(secret.ResourceVersion))
		})
	}
}

// ready returns the status and the message of the Certificate's condition.
func ready(ctx context.Context, g *WithT, c client.Client) (status, message string) {
	object := newObject(certificateKind)
	g.Expect(c.Get(ctx, key, object)).To(Succeed())
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(conditions).To(HaveLen(1))
	condition := conditions[0].(map[string]any)
	g.Expect(condition["type"]).To(Equal("Ready"))
	return condition["status"].(string), condition["message"].(string)
}

// TestInject checks that objects with the annotation get the authority in all places, and that others don't change.
func TestInject(t *testing.T) {
	kinds := map[string]func(metav1.ObjectMeta) client.Object{
		"inject-validating": func(m metav1.ObjectMeta) client.Object {
			return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: m, Webhooks: []admissionv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}}}
		},
		"inject-mutating": func(m metav1.ObjectMeta) client.Object {
			return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: m, Webhooks: []admissionv1.MutatingWebhook{{Name: "a"}}}
		},
		"inject-crds": func(m metav1.ObjectMeta) client.Object {
			return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: m, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Conversion: &apiextensionsv1.CustomResourceConversion{Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: &apiextensionsv1.WebhookClientConfig{}}},
			}}
		},
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "tls", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: certificateKind.GroupVersion().String(), Kind: certificateKind.Kind, Name: key.Name, UID: "certificate"}}},
		Data: map[string][]byte{corev1.ServiceAccountRootCAKey: []byte("authority")},
	}
	for name, object := range kinds {
		for _, test := range []struct {
			name, annotation string
			objects          []client.Object
			injected, wanted bool
		}{
			{"requested", "system/serving", []client.Object{secret}, true, true},
			{"another's", "system/other", []client.Object{secret}, false, false},
			{"no annotation", "", []client.Object{secret}, false, false},
			{"no Secret so far", "system/serving", nil, false, true},
		} {
			t.Run(name+"/"+test.name, func(t *testing.T) {
				g := NewWithT(t)
				ctx := context.Background()
				meta := metav1.ObjectMeta{Name: "one"}
				if test.annotation != "" {
					meta.Annotations = map[string]string{injectAnnotation: test.annotation}
				}
				c := newClient(g, append(test.objects, object(meta))...)
				i := injectors(c)[name]
				request := ctrl.Request{NamespacedName: client.ObjectKey{Name: "one"}}
				if test.wanted {
					g.Expect(i.requestsFor(ctx, secret)).To(ConsistOf(request))
				} else {
					g.Expect(i.requestsFor(ctx, secret)).To(BeEmpty())
				}
				_, err := i.Reconcile(ctx, request)
				g.Expect(err).ToNot(HaveOccurred())
				got := i.newObj()
				g.Expect(c.Get(ctx, request.NamespacedName, got)).To(Succeed())
				places := i.bundles(got)
				g.Expect(places).ToNot(BeEmpty())
				for _, place := range places {
					g.Expect(len(*place) > 0).To(Equal(test.injected))
				}
				if test.injected {
					g.Expect(places).To(HaveEach(HaveValue(BeEquivalentTo("authority"))))
				}
			})
		}
	}
}
