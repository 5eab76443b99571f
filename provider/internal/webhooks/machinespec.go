package webhooks

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// machineSpecErrors lists the errors in the spec of a machine or a template.
func machineSpecErrors(spec *infrav1.LibvirtMachineSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	otherArchitecture := spec.CPU.Architecture != "" && spec.CPU.Architecture != infrav1.ArchitectureAmd64
	if spec.Firmware.Type == infrav1.FirmwareBIOS && otherArchitecture {
		errs = append(errs, field.Invalid(path.Child("firmware", "type"), spec.Firmware.Type,
			fmt.Sprintf("only amd64 has BIOS: use UEFI for %s", spec.CPU.Architecture)))
	}
	if spec.Hugepages != nil {
		// The schema checks the page size. A size that can't be parsed is skipped here.
		pageSize, err := resource.ParseQuantity(string(spec.Hugepages.PageSize))
		if err == nil && pageSize.Sign() > 0 && spec.Memory.Value()%pageSize.Value() != 0 {
			errs = append(errs, field.Invalid(path.Child("memory"), spec.Memory.String(),
				fmt.Sprintf("must be a multiple of hugepages.pageSize, which is %s", spec.Hugepages.PageSize)))
		}
	}
	errs = append(errs, imageErrors(&spec.Image, path.Child("image"))...)
	return append(errs, interfaceErrors(spec.Interfaces, path.Child("interfaces"))...)
}

// imageErrors refuses the names of volumes that the provider creates on hosts: disks and seeds of machines in any
// namespace, and images from URLs.
func imageErrors(image *infrav1.ImageSpec, path *field.Path) field.ErrorList {
	if !hypervisor.IsOwnName(image.Volume) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("volume"), image.Volume,
		"is a name of the provider's own volumes: use another volume, or url")}
}

func interfaceErrors(interfaces []infrav1.InterfaceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	addresses := map[string]bool{}
	for i, nic := range interfaces {
		if nic.MACAddress != "" && addresses[nic.MACAddress] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("macAddress"), nic.MACAddress))
		}
		addresses[nic.MACAddress] = true

		pools := map[ipamv1.IPPoolReference]bool{}
		for j, pool := range nic.AddressesFromPools {
			if pools[pool] {
				errs = append(errs, field.Duplicate(path.Index(i).Child("addressesFromPools").Index(j), pool.Kind+"/"+pool.Name))
			}
			pools[pool] = true
		}
		for j, server := range nic.Nameservers {
			if address, err := netip.ParseAddr(server); err != nil || address.Zone() != "" {
				errs = append(errs, field.Invalid(path.Index(i).Child("nameservers").Index(j), server, "must be an IP address"))
			}
		}
	}
	return errs
}

// machineTemplateErrors lists the errors in a template of machines: those of a machine, and fields that belong to one
// machine.
func machineTemplateErrors(template *infrav1.LibvirtMachineTemplateResource, path *field.Path) field.ErrorList {
	const oneMachine = "belongs to one machine and can't be set in a template: leave it out"

	errs := template.ObjectMeta.Validate(path.Child("metadata"))
	specPath := path.Child("spec")
	errs = append(errs, machineSpecErrors(&template.Spec, specPath)...)
	if template.Spec.ProviderID != "" {
		errs = append(errs, field.Forbidden(specPath.Child("providerID"), oneMachine))
	}
	if template.Spec.HostName != "" {
		errs = append(errs, field.Forbidden(specPath.Child("hostName"), oneMachine))
	}
	for i, nic := range template.Spec.Interfaces {
		if nic.MACAddress != "" {
			errs = append(errs, field.Forbidden(specPath.Child("interfaces").Index(i).Child("macAddress"), oneMachine))
		}
	}
	return errs
}
