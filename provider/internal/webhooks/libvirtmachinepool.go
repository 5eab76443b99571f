package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/feature"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachinepool,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepools,versions=v1alpha1,name=validation.libvirtmachinepool.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachinePoolValidator() validator[*infrav1.LibvirtMachinePool] {
	return validator[*infrav1.LibvirtMachinePool]{
		always: func(p *infrav1.LibvirtMachinePool) field.ErrorList {
			return machinePoolSpecErrors(&p.Spec, field.NewPath("spec"))
		},
		onCreate: machinePoolGateErrors,
		onUpdate: func(before, after *infrav1.LibvirtMachinePool) field.ErrorList {
			return unchangedOnceSet(field.NewPath("spec", "providerID"), before.Spec.ProviderID, after.Spec.ProviderID)
		},
	}
}

// machinePoolGateErrors refuses new pools while their controller is disabled.
func machinePoolGateErrors() field.ErrorList {
	if feature.Gates.Enabled(feature.MachinePool) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"),
		"machine pools are turned off: start the manager with --feature-gates=MachinePool=true")}
}

func machinePoolSpecErrors(spec *infrav1.LibvirtMachinePoolSpec, path *field.Path) field.ErrorList {
	errs := machineTemplateErrors(&spec.Template, path.Child("template"))
	errs = append(errs, strategyErrors(spec.Strategy, path.Child("strategy"))...)

	seen := make(map[string]bool, len(spec.ProviderIDList))
	for i, id := range spec.ProviderIDList {
		if seen[id] {
			errs = append(errs, field.Duplicate(path.Child("providerIDList").Index(i), id))
		}
		seen[id] = true
	}
	return errs
}

func strategyErrors(strategy infrav1.MachinePoolStrategy, path *field.Path) field.ErrorList {
	surge, errs := machinesOf(strategy.MaxSurge, 1, path.Child("maxSurge"))
	unavailable, moreErrs := machinesOf(strategy.MaxUnavailable, 0, path.Child("maxUnavailable"))
	errs = append(errs, moreErrs...)
	if len(errs) == 0 && surge == 0 && unavailable == 0 {
		errs = append(errs, field.Invalid(path, "maxSurge and maxUnavailable are 0",
			"no machine could be replaced: raise one of them"))
	}
	return errs
}

// machinesOf returns the number of machines that a number or percentage means for a pool of a hundred.
func machinesOf(value *intstr.IntOrString, otherwise int, path *field.Path) (int, field.ErrorList) {
	if value == nil {
		return otherwise, nil
	}
	machines, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true)
	if err != nil {
		return 0, field.ErrorList{field.Invalid(path, value.String(), fmt.Sprintf("must be a number such as 1, or a percentage such as 25%%: %v", err))}
	}
	if machines < 0 {
		return 0, field.ErrorList{field.Invalid(path, value.String(), "must not be negative")}
	}
	return machines, nil
}

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachinepooltemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinepooltemplates,versions=v1alpha1,name=validation.libvirtmachinepooltemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachinePoolTemplateValidator() validator[*infrav1.LibvirtMachinePoolTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtMachinePoolTemplate]{
		always: func(t *infrav1.LibvirtMachinePoolTemplate) field.ErrorList {
			return machinePoolTemplateErrors(&t.Spec.Template, template)
		},
		onCreate: machinePoolGateErrors,
		onUpdate: func(before, after *infrav1.LibvirtMachinePoolTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}

func machinePoolTemplateErrors(template *infrav1.LibvirtMachinePoolTemplateResource, path *field.Path) field.ErrorList {
	const onePool = "belongs to one pool and can't be set in a template: leave it out"

	errs := template.ObjectMeta.Validate(path.Child("metadata"))
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
