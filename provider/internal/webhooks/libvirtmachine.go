package webhooks

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,versions=v1alpha1,name=validation.libvirtmachine.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachineValidator() validator[*infrav1.LibvirtMachine] {
	return validator[*infrav1.LibvirtMachine]{
		always: func(m *infrav1.LibvirtMachine) field.ErrorList {
			return machineSpecErrors(&m.Spec, field.NewPath("spec"))
		},
		onUpdate: func(before, after *infrav1.LibvirtMachine) field.ErrorList {
			return machineChangeErrors(&before.Spec, &after.Spec, field.NewPath("spec"))
		},
	}
}

// machineChangeErrors lists the invalid changes of a machine. cpus (unless dedicated), memory and runPolicy may change,
// disks may grow, and providerID and hostName may be set. All other fields are immutable.
func machineChangeErrors(before, after *infrav1.LibvirtMachineSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, unchangedOnceSet(path.Child("providerID"), before.ProviderID, after.ProviderID)...)
	errs = append(errs, unchangedOnceSet(path.Child("hostName"), before.HostName, after.HostName)...)
	errs = append(errs, unchanged(path.Child("cpu"), before.CPU, after.CPU, replaceMachine)...)
	if exclusive.Dedicated(before) || exclusive.Dedicated(after) {
		errs = append(errs, unchanged(path.Child("cpus"), before.CPUs, after.CPUs, "the machine has dedicated CPUs: "+replaceMachine)...)
	}
	errs = append(errs, unchanged(path.Child("firmware"), before.Firmware, after.Firmware, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("tpm"), before.TPM, after.TPM, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("image"), before.Image, after.Image, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("interfaces"), before.Interfaces, after.Interfaces, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("hostDevices"), before.HostDevices, after.HostDevices, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("hugepages"), before.Hugepages, after.Hugepages, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("autostart"), before.Autostart, after.Autostart, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("guestAgent"), before.GuestAgent, after.GuestAgent, replaceMachine)...)
	errs = append(errs, unchanged(path.Child("bootstrapFormat"), before.BootstrapFormat, after.BootstrapFormat, replaceMachine)...)
	return append(errs, diskChangeErrors(before, after, path)...)
}

func diskChangeErrors(before, after *infrav1.LibvirtMachineSpec, path *field.Path) field.ErrorList {
	rootPath := path.Child("rootDisk")
	errs := unchanged(rootPath.Child("pool"), before.RootDisk.Pool, after.RootDisk.Pool, replaceMachine)
	errs = append(errs, unchanged(rootPath.Child("clone"), before.RootDisk.Clone, after.RootDisk.Clone, replaceMachine)...)
	errs = append(errs, notSmaller(rootPath.Child("size"), before.RootDisk.Size, after.RootDisk.Size)...)

	extraPath := path.Child("extraDisks")
	if len(before.ExtraDisks) != len(after.ExtraDisks) {
		return append(errs, field.Forbidden(extraPath, replaceMachine))
	}
	for i := range after.ExtraDisks {
		diskPath := extraPath.Index(i)
		errs = append(errs, unchanged(diskPath.Child("name"), before.ExtraDisks[i].Name, after.ExtraDisks[i].Name, replaceMachine)...)
		errs = append(errs, unchanged(diskPath.Child("pool"), before.ExtraDisks[i].Pool, after.ExtraDisks[i].Pool, replaceMachine)...)
		errs = append(errs, notSmaller(diskPath.Child("size"), before.ExtraDisks[i].Size, after.ExtraDisks[i].Size)...)
	}
	return errs
}

func notSmaller(path *field.Path, before, after resource.Quantity) field.ErrorList {
	if after.Cmp(before) >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, after.String(), fmt.Sprintf("a disk can grow and can't shrink: must be at least %s", before.String()))}
}

// +kubebuilder:webhook:verbs=create;update,path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachinetemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachinetemplates,versions=v1alpha1,name=validation.libvirtmachinetemplate.infrastructure.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

func libvirtMachineTemplateValidator() validator[*infrav1.LibvirtMachineTemplate] {
	template := field.NewPath("spec", "template")
	return validator[*infrav1.LibvirtMachineTemplate]{
		always: func(t *infrav1.LibvirtMachineTemplate) field.ErrorList {
			return machineTemplateErrors(&t.Spec.Template, template)
		},
		onUpdate: func(before, after *infrav1.LibvirtMachineTemplate) field.ErrorList {
			return unchanged(template.Child("spec"), before.Spec.Template.Spec, after.Spec.Template.Spec, replaceTemplate)
		},
	}
}
