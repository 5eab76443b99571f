package webhooks

import (
	"context"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
)

// apiServerPort is the default port of an API server.
const apiServerPort = 6443

// +kubebuilder:webhook:verbs=create;update,path=/mutate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtcluster,mutating=true,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters,versions=v1alpha1,name=default.libvirtcluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1
// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtcluster,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclusters,versions=v1alpha1,name=validation.libvirtcluster.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// LibvirtClusterDefaulter sets defaults of LibvirtClusters.
type LibvirtClusterDefaulter struct{}

var _ admission.Defaulter[*infrav1.LibvirtCluster] = LibvirtClusterDefaulter{}

// Default sets the port of a control plane endpoint with a host.
func (LibvirtClusterDefaulter) Default(_ context.Context, cluster *infrav1.LibvirtCluster) error {
	endpoint := &cluster.Spec.ControlPlaneEndpoint
	if endpoint.Host != "" && endpoint.Port == 0 {
		endpoint.Port = apiServerPort
	}
	return nil
}

func libvirtClusterValidator() validator[*infrav1.LibvirtCluster] {
	return validator[*infrav1.LibvirtCluster]{
		always: func(c *infrav1.LibvirtCluster) field.ErrorList {
			return clusterSpecErrors(&c.Spec, field.NewPath("spec"))
		},
		onUpdate: func(before, after *infrav1.LibvirtCluster) field.ErrorList {
			return clusterChangeErrors(&before.Spec, &after.Spec, field.NewPath("spec"))
		},
	}
}

func clusterSpecErrors(spec *infrav1.LibvirtClusterSpec, path *field.Path) field.ErrorList {
	errs := endpointErrors(spec.ControlPlaneEndpoint, path.Child("controlPlaneEndpoint"))
	if balancer := spec.ControlPlaneLoadBalancer.HAProxy; balancer != nil {
		errs = append(errs, imageErrors(&balancer.Image, path.Child("controlPlaneLoadBalancer", "haproxy", "image"))...)
	}
	return append(errs, selectorErrors(spec.HostSelector, path.Child("hostSelector"))...)
}

func endpointErrors(endpoint clusterv1.APIEndpoint, path *field.Path) field.ErrorList {
	if endpoint.Host == "" {
		return nil
	}
	if _, err := netip.ParseAddr(endpoint.Host); err == nil {
		return nil
	}
	if len(validation.IsDNS1123Subdomain(endpoint.Host)) == 0 && !hosturi.IsNumeric(endpoint.Host) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("host"), endpoint.Host,
		"must be an IP address or a DNS name in lower case, without scheme and port")}
}

func selectorErrors(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// clusterChangeErrors lists the invalid changes of a cluster. Every node and every kubeconfig has the endpoint, so it
// is immutable once set.
func clusterChangeErrors(before, after *infrav1.LibvirtClusterSpec, path *field.Path) field.ErrorList {
	endpointPath := path.Child("controlPlaneEndpoint")
	errs := unchangedOnceSet(endpointPath.Child("host"), before.ControlPlaneEndpoint.Host, after.ControlPlaneEndpoint.Host)
	errs = append(errs, unchangedOnceSet(endpointPath.Child("port"), before.ControlPlaneEndpoint.Port, after.ControlPlaneEndpoint.Port)...)
	if before.ControlPlaneEndpoint.Host != "" {
		errs = append(errs, unchanged(path.Child("controlPlaneLoadBalancer", "type"),
			before.ControlPlaneLoadBalancer.Type, after.ControlPlaneLoadBalancer.Type,
			fmt.Sprintf("is immutable once the control plane endpoint is set: it belongs to %s", before.ControlPlaneLoadBalancer.Type))...)
	}
	return errs
}

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclustertemplates,versions=v1alpha1,name=validation.libvirtclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtClusterTemplateValidator() validator[*infrav1.LibvirtClusterTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtClusterTemplate]{
		always: func(t *infrav1.LibvirtClusterTemplate) field.ErrorList {
			errs := t.Spec.Template.ObjectMeta.Validate(template.Child("metadata"))
			return append(errs, clusterSpecErrors(&t.Spec.Template.Spec, template.Child("spec"))...)
		},
		onUpdate: func(before, after *infrav1.LibvirtClusterTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}
