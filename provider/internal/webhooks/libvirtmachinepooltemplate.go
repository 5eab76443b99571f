package webhooks

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachinepooltemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepooltemplates,versions=v1alpha1,name=validation.libvirtmachinepooltemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachinePoolTemplateValidator() validator[*infrav1.LibvirtMachinePoolTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtMachinePoolTemplate]{
		kind:   "LibvirtMachinePoolTemplate",
		object: &infrav1.LibvirtMachinePoolTemplate{},
		spec:   func(t *infrav1.LibvirtMachinePoolTemplate) any { return t.Spec },
		always: func(t *infrav1.LibvirtMachinePoolTemplate) field.ErrorList {
			return machinePoolTemplateErrors(&t.Spec.Template, template)
		},
		onCreate: func(*infrav1.LibvirtMachinePoolTemplate) field.ErrorList {
			return machinePoolGateErrors()
		},
		onUpdate: func(before, after *infrav1.LibvirtMachinePoolTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}

func machinePoolTemplateErrors(template *infrav1.LibvirtMachinePoolTemplateResource, path *field.Path) field.ErrorList {
	const onePool = "belongs to one pool and can't be set in a template: leave it out"

	errs := metadataErrors(&template.ObjectMeta, path.Child("metadata"))
	specPath := path.Child("spec")
	errs = append(errs, machinePoolSpecErrors(&template.Spec, specPath)...)
	if template.Spec.ProviderID != "" {
		errs = append(errs, field.Forbidden(specPath.Child("providerID"), onePool))
	}
	if len(template.Spec.ProviderIDList) > 0 {
		errs = append(errs, field.Forbidden(specPath.Child("providerIDList"), onePool))
	}
	return errs
}
