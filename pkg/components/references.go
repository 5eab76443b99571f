package components

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
)

// The annotations by which cert-manager's CA injector finds a certificate.
const (
	injectCAFrom       = "cert-manager.io/inject-ca-from"
	injectCAFromSecret = "cert-manager.io/inject-ca-from-secret" //nolint:gosec // an annotation's name
)

// moves knows which objects were moved to the target namespace, and from where.
type moves struct {
	target string
	// from are the namespaces that objects were moved out of.
	from map[string]bool
	// ours are the objects of the components that others refer to, as kind/namespace/name with
	// the namespace they had.
	ours map[string]bool
}

// newMoves takes stock of the objects before anything is moved.
func newMoves(objects []unstructured.Unstructured, target string) *moves {
	m := &moves{target: target, from: map[string]bool{}, ours: map[string]bool{}}
	for _, o := range objects {
		namespace := o.GetNamespace()
		switch o.GetKind() {
		case "ServiceAccount", "Service", "Secret", "Certificate":
			m.ours[key(o.GetKind(), namespace, o.GetName())] = true
		}
		if o.GetKind() == "Certificate" {
			// The Secret of a certificate is cert-manager's to make, and is found next to it.
			if secret := manifest.Text(o.Object, "spec", "secretName"); secret != "" {
				m.ours[key("Secret", namespace, secret)] = true
			}
		}
		if pod, ok := manifest.PodOf(o); ok {
			// An account that pods run under is the provider's own, listed or not.
			m.ours[key("ServiceAccount", namespace, cmp.Or(manifest.Text(pod.Spec, "serviceAccountName"), "default"))] = true
		}
	}
	return m
}

// key names an object in moves.ours.
func key(kind, namespace, name string) string {
	return kind + "/" + namespace + "/" + name
}

// moved returns the namespace of one of our objects now: the target's, or false where the object
// is none of ours or did not move.
func (m *moves) moved(kind, namespace, name string) (string, bool) {
	if namespace == m.target || !m.ours[key(kind, namespace, name)] {
		return "", false
	}
	return m.target, true
}

// follow lets an object's references go where the objects they name went.
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

// followSubjects moves the subjects of a binding that are our own service accounts.
func (m *moves) followSubjects(o unstructured.Unstructured) {
	for _, subject := range manifest.Maps(o.Object, "subjects") {
		name, namespace := manifest.Text(subject, "name"), manifest.Text(subject, "namespace")
		switch subject["kind"] {
		case "ServiceAccount":
			if target, ok := m.moved("ServiceAccount", namespace, name); ok {
				subject["namespace"] = target
			}
		case "Group":
			// All service accounts of a namespace are a group of this name.
			if old, ok := strings.CutPrefix(name, "system:serviceaccounts:"); ok && m.from[old] {
				subject["name"] = "system:serviceaccounts:" + m.target
			}
		case "User":
			old, ok := strings.CutPrefix(name, "system:serviceaccount:")
			if !ok {
				continue
			}
			namespace, account, _ := strings.Cut(old, ":")
			if target, ok := m.moved("ServiceAccount", namespace, account); ok {
				subject["name"] = "system:serviceaccount:" + target + ":" + account
			}
		}
	}
}

// followService moves a reference to one of our Services.
func (m *moves) followService(service map[string]any) {
	name, namespace := manifest.Text(service, "name"), manifest.Text(service, "namespace")
	if target, ok := m.moved("Service", namespace, name); ok {
		service["namespace"] = target
	}
}

// followAnnotations moves the references to our certificates and their Secrets.
func (m *moves) followAnnotations(o unstructured.Unstructured) {
	annotations := manifest.Map(o.Object, "metadata", "annotations")
	for annotation, kind := range map[string]string{injectCAFrom: "Certificate", injectCAFromSecret: "Secret"} {
		value, _ := annotations[annotation].(string)
		namespace, name, ok := strings.Cut(value, "/")
		if !ok {
			continue
		}
		if target, ok := m.moved(kind, namespace, name); ok {
			annotations[annotation] = target + "/" + name
		}
	}
}

// followDNSNames moves the names of Services in a certificate: <service>.<namespace>[.svc[...]].
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
