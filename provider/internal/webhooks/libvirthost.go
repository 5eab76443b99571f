package webhooks

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
)

// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirthost,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,versions=v1alpha1,name=default.libvirthost.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirthost,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,versions=v1alpha1,name=validation.libvirthost.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// LibvirtHostDefaulter sets defaults of LibvirtHosts.
type LibvirtHostDefaulter struct{}

var _ admission.Defaulter[*infrav1.LibvirtHost] = LibvirtHostDefaulter{}

// Default sets the failure domain of a host to its name. A host with a generated name has no name yet: its failure
// domain stays empty, which means the same.
func (LibvirtHostDefaulter) Default(_ context.Context, host *infrav1.LibvirtHost) error {
	if host.Spec.FailureDomain == "" {
		host.Spec.FailureDomain = host.Name
	}
	return nil
}

func libvirtHostValidator() validator[*infrav1.LibvirtHost] {
	return validator[*infrav1.LibvirtHost]{
		always: func(h *infrav1.LibvirtHost) field.ErrorList {
			return hostSpecErrors(&h.Spec, field.NewPath("spec"))
		},
	}
}

func hostSpecErrors(spec *infrav1.LibvirtHostSpec, path *field.Path) field.ErrorList {
	errs := append(hostURIErrors(spec, path), dedicatedErrors(spec, path)...)

	disksPath := path.Child("storagePools", "disks")
	seen := map[string]bool{}
	for i, pool := range spec.StoragePools.Disks {
		if seen[pool] {
			errs = append(errs, field.Duplicate(disksPath.Index(i), pool))
		}
		seen[pool] = true
	}
	for i, network := range spec.Networks {
		if network.AllowedNamespaces != nil {
			errs = append(errs, selectorErrors(network.AllowedNamespaces.Selector, path.Child("networks").Index(i).Child("allowedNamespaces", "selector"))...)
		}
	}
	return errs
}

func dedicatedErrors(spec *infrav1.LibvirtHostSpec, path *field.Path) field.ErrorList {
	if _, err := exclusive.ReadCPUs(spec.DedicatedCPUs); err != nil {
		return field.ErrorList{field.Invalid(path.Child("dedicatedCPUs"), spec.DedicatedCPUs, err.Error())}
	}
	return nil
}

func hostURIErrors(spec *infrav1.LibvirtHostSpec, path *field.Path) field.ErrorList {
	uri, err := hosturi.Parse(spec.URI)
	if err != nil {
		// The message doesn't repeat the value, which may have a password: messages are logged.
		return field.ErrorList{field.Invalid(path.Child("uri"), field.OmitValueType{}, err.Error())}
	}
	if uri.NeedsIdentity() && spec.IdentityRef == nil {
		return field.ErrorList{field.Required(path.Child("identityRef"),
			fmt.Sprintf("qemu+%s needs credentials: name a LibvirtClusterIdentity", uri.Transport))}
	}
	return nil
}
