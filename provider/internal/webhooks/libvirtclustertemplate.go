package webhooks

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtclustertemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtclustertemplates,versions=v1alpha1,name=validation.libvirtclustertemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtClusterTemplateValidator() validator[*infrav1.LibvirtClusterTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtClusterTemplate]{
		kind:   "LibvirtClusterTemplate",
		object: &infrav1.LibvirtClusterTemplate{},
		spec:   func(t *infrav1.LibvirtClusterTemplate) any { return t.Spec },
		always: func(t *infrav1.LibvirtClusterTemplate) field.ErrorList {
			errs := metadataErrors(&t.Spec.Template.ObjectMeta, template.Child("metadata"))
			return append(errs, clusterSpecErrors(&t.Spec.Template.Spec, template.Child("spec"))...)
		},
		onUpdate: func(before, after *infrav1.LibvirtClusterTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}
