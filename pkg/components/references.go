package components

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The annotations with which cert-manager's CA injector finds a certificate.
const (
	injectCAFrom       = "cert-manager.io/inject-ca-from"
	injectCAFromSecret = "cert-manager.io/inject-ca-from-secret" //nolint:gosec // an annotation's name
)

// moves records which objects were moved to the target namespace, and from where.
type moves struct {
	target string
	// from are the original namespaces of moved objects.
	from map[string]bool
	// ours are the objects of the components that others refer to, as kind/namespace/name with their original
	// namespace.
	ours map[string]bool
}

// newMoves records the objects before they are moved.
func newMoves(objects []unstructured.Unstructured, target string) *moves {
	m := &moves{target: target, from: map[string]bool{}, ours: map[string]bool{}}
	for _, o := range objects {
		namespace := o.GetNamespace()
		switch o.GetKind() {
		case "ServiceAccount", "Service", "Secret", "Certificate":
			m.ours[key(o.GetKind(), namespace, o.GetName())] = true
		}
		if o.GetKind() == "Certificate" {
			// cert-manager creates the Secret of a certificate next to it.
			if secret := manifest.Text(o.Object, "spec", "secretName"); secret != "" {
				m.ours[key("Secret", namespace, secret)] = true
			}
		}
		if pod, ok := manifest.PodOf(o); ok {
			// The account of a pod belongs to the provider, even if the components don't contain it.
			m.ours[key("ServiceAccount", namespace, cmp.Or(manifest.Text(pod.Spec, "serviceAccountName"), "default"))] = true
		}
	}
	return m
}

// key names an object in moves.ours.
func key(kind, namespace, name string) string {
	return kind + "/" + namespace + "/" + name
}

// moved reports whether an object is one of the components that moved to the target namespace.
func (m *moves) moved(kind, namespace, name string) bool {
	return namespace != m.target && m.ours[key(kind, namespace, name)]
}

// follow updates an object's references to moved objects.
// Source: clusterctl provider contract, "Components YAML transformations".
func (m *moves) follow(o unstructured.Unstructured) {
	switch o.GetKind() {
	case "RoleBinding", "ClusterRoleBinding":
		m.followSubjects(o)
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		for _, webhook := range manifest.Maps(o.Object, "webhooks") {
			m.followService(manifest.Map(webhook, "clientConfig", "service"))
		}
	case "CustomResourceDefinition":
		m.followService(manifest.Map(o.Object, "spec", "conversion", "webhook", "clientConfig", "service"))
	case "APIService":
		m.followService(manifest.Map(o.Object, "spec", "service"))
	case "Certificate":
		m.followDNSNames(o)
	}
	m.followAnnotations(o)
}

// followSubjects updates the subjects of a binding that are service accounts of the components.
func (m *moves) followSubjects(o unstructured.Unstructured) {
	for _, subject := range manifest.Maps(o.Object, "subjects") {
		name, namespace := manifest.Text(subject, "name"), manifest.Text(subject, "namespace")
		switch subject["kind"] {
		case "ServiceAccount":
			if m.moved("ServiceAccount", namespace, name) {
				subject["namespace"] = m.target
			}
		case "Group":
			// The group of all service accounts of a namespace has this name.
			if old, ok := strings.CutPrefix(name, "system:serviceaccounts:"); ok && m.from[old] {
				subject["name"] = "system:serviceaccounts:" + m.target
			}
		case "User":
			old, ok := strings.CutPrefix(name, "system:serviceaccount:")
			namespace, account, _ := strings.Cut(old, ":")
			if ok && m.moved("ServiceAccount", namespace, account) {
				subject["name"] = "system:serviceaccount:" + m.target + ":" + account
			}
		}
	}
}

// followService updates a reference to a Service of the components.
func (m *moves) followService(service map[string]any) {
	name, namespace := manifest.Text(service, "name"), manifest.Text(service, "namespace")
	if m.moved("Service", namespace, name) {
		service["namespace"] = m.target
	}
}

// followAnnotations updates the references to certificates of the components and their Secrets.
func (m *moves) followAnnotations(o unstructured.Unstructured) {
	annotations := manifest.Map(o.Object, "metadata", "annotations")
	for annotation, kind := range map[string]string{injectCAFrom: "Certificate", injectCAFromSecret: "Secret"} {
		value, _ := annotations[annotation].(string)
		if namespace, name, ok := strings.Cut(value, "/"); ok && m.moved(kind, namespace, name) {
			annotations[annotation] = m.target + "/" + name
		}
	}
}

// followDNSNames updates the names of Services in a certificate: <service>.<namespace>[.svc[...]].
func (m *moves) followDNSNames(o unstructured.Unstructured) {
	names, _ := manifest.Map(o.Object, "spec")["dnsNames"].([]any)
	for i, value := range names {
		name, _ := value.(string)
		labels := strings.Split(name, ".")
		if len(labels) < 2 || !m.from[labels[1]] || (len(labels) > 2 && labels[2] != "svc") {
			continue
		}
		labels[1] = m.target
		names[i] = strings.Join(labels, ".")
	}
}
