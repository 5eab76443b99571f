// Package access says which namespaces may use which hosts.
package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// Identity reports whether an identity allows a namespace: none without allowedNamespaces, all if it is empty, and
// otherwise those of its list or selector. The error is about the selector.
func Identity(identity *infrav1.LibvirtClusterIdentity, namespace *corev1.Namespace) (bool, error) {
	if identity.Spec.AllowedNamespaces == nil {
		return false, nil
	}
	allowed, err := allows(identity.Spec.AllowedNamespaces, namespace)
	if err != nil {
		return false, fmt.Errorf("reading spec.allowedNamespaces.selector of LibvirtClusterIdentity %s: %w", identity.Name, err)
	}
	return allowed, nil
}

// Networks returns the networks of a host that machines of a namespace can use. An invalid selector, which the webhook
// refuses, selects nothing.
func Networks(host *infrav1.LibvirtHost, namespace *corev1.Namespace) []infrav1.HostNetwork {
	var networks []infrav1.HostNetwork
	for _, network := range host.Spec.Networks {
		allowed := network.AllowedNamespaces == nil
		if !allowed {
			allowed, _ = allows(network.AllowedNamespaces, namespace)
		}
		if allowed {
			networks = append(networks, network)
		}
	}
	return networks
}

func allows(allowed *infrav1.AllowedNamespaces, namespace *corev1.Namespace) (bool, error) {
	switch {
	case len(allowed.List) == 0 && allowed.Selector == nil:
		return true, nil
	case slices.Contains(allowed.List, namespace.Name):
		return true, nil
	case allowed.Selector == nil:
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
	if err != nil {
		return false, err
	}
	return selector.Matches(labels.Set(namespace.Labels)), nil
}

// Host reports whether a namespace may place machines on a host. Hosts without an identity are open to all. Those whose
// identity is missing or has an invalid selector are closed, which the identity's condition says.
func Host(host *infrav1.LibvirtHost, identities []infrav1.LibvirtClusterIdentity, namespace *corev1.Namespace) bool {
	if host.Spec.IdentityRef == nil {
		return true
	}
	for i := range identities {
		if identities[i].Name == host.Spec.IdentityRef.Name {
			allowed, err := Identity(&identities[i], namespace)
			return err == nil && allowed
		}
	}
	return false
}

// NotAllowed is the message for a namespace that may not use the existing hosts. It doesn't reveal hosts and
// identities.
func NotAllowed(namespace string) string {
	return fmt.Sprintf("LibvirtHosts exist, but namespace %s may not use them: ask the administrators of the hosts to add it to "+
		"spec.allowedNamespaces of a LibvirtClusterIdentity", namespace)
}
