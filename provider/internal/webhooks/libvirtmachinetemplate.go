package webhooks

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinetemplates,versions=v1alpha1,name=validation.libvirtmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachineTemplateValidator() validator[*infrav1.LibvirtMachineTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtMachineTemplate]{
		kind:   "LibvirtMachineTemplate",
		object: &infrav1.LibvirtMachineTemplate{},
		spec:   func(t *infrav1.LibvirtMachineTemplate) any { return t.Spec },
		always: func(t *infrav1.LibvirtMachineTemplate) field.ErrorList {
			return machineTemplateErrors(&t.Spec.Template, template)
		},
		onUpdate: func(before, after *infrav1.LibvirtMachineTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}
