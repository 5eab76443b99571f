package webhooks

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtclusteridentity,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities,versions=v1alpha1,name=default.libvirtclusteridentity.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtclusteridentity,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusteridentities,versions=v1alpha1,name=validation.libvirtclusteridentity.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// LibvirtClusterIdentityDefaulter sets defaults of LibvirtClusterIdentities.
type LibvirtClusterIdentityDefaulter struct {
	// Namespace is the namespace that the manager runs in.
	Namespace string
}

var _ admission.Defaulter[*infrav1.LibvirtClusterIdentity] = LibvirtClusterIdentityDefaulter{}

// Default sets the namespace of the Secret to the manager's namespace.
func (d LibvirtClusterIdentityDefaulter) Default(_ context.Context, identity *infrav1.LibvirtClusterIdentity) error {
	if identity.Spec.SecretRef.Namespace == "" {
		identity.Spec.SecretRef.Namespace = d.Namespace
	}
	return nil
}

func libvirtClusterIdentityValidator() validator[*infrav1.LibvirtClusterIdentity] {
	return validator[*infrav1.LibvirtClusterIdentity]{
		always: func(i *infrav1.LibvirtClusterIdentity) field.ErrorList {
			allowed := i.Spec.AllowedNamespaces
			if allowed == nil {
				return nil
			}
			return selectorErrors(allowed.Selector, field.NewPath("spec", "allowedNamespaces", "selector"))
		},
	}
}
