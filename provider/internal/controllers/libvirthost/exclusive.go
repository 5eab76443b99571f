package libvirthost

import (
	"strings"

	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/exclusive"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/fleet"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/notes"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/placement"
)

// setExclusive sets the number of dedicated CPUs and devices, and how many are free. allocated has the resources of
// machines and of foreign domains. The status stays while the host is unknown.
func setExclusive(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, allocated placement.Resources) {
	if snapshot.Taken.IsZero() {
		return
	}
	host.Status.HostDevices = devices(host, snapshot, allocated)
	host.Status.DedicatedCPUs = nil
	if host.Spec.DedicatedCPUs != "" {
		cpus := exclusive.CPUsOf(&host.Spec, snapshot.Facts)
		count, free := free(len(cpus.Dedicated), allocated[placement.Resource{Kind: placement.DedicatedCPU}])
		host.Status.DedicatedCPUs = &infrav1.HostDedicatedCPUs{Count: count, Free: free}
		if cpus.Missing != "" {
			host.Status.DedicatedCPUs.Message = "The host has no CPUs " + cpus.Missing + ": correct spec.dedicatedCPUs"
		}
	}
}

// devices counts the lent devices of each model.
func devices(host *infrav1.LibvirtHost, snapshot fleet.Snapshot, allocated placement.Resources) []infrav1.HostDevices {
	var models []infrav1.HostDevices
	lent := exclusive.LentOf(&host.Spec, snapshot.Devices)
	for _, model := range host.Spec.HostDevices {
		var problems []string
		usable, present := 0, map[string]bool{}
		for _, device := range lent {
			if device.VendorID != model.VendorID || device.ProductID != model.ProductID {
				continue
			}
			present[device.Address] = true
			if device.Problem == "" {
				usable++
				continue
			}
			problems = append(problems, device.Address+" "+device.Problem)
		}
		for _, address := range model.Addresses {
			if !present[address] && snapshot.DevicesErr == nil {
				problems = append(problems, address+" doesn't exist, or is of another model")
			}
		}
		if snapshot.DevicesErr != nil {
			problems = append(problems, "the devices can't be listed: "+snapshot.DevicesErr.Error())
		}
		count, left := free(usable, allocated[placement.DeviceResource(model.VendorID, model.ProductID)])
		models = append(models, infrav1.HostDevices{VendorID: model.VendorID, ProductID: model.ProductID,
			Count: count, Free: left, Message: shortened(problems)})
	}
	return models
}

// shortened joins messages up to the maximum length in a status.
func shortened(messages []string) string {
	const most = 1024
	text := strings.Join(messages, "; ")
	if len(text) > most {
		text = notes.Cut(text, most-len("...")) + "..."
	}
	return text
}

// free returns a number as a pointer for the status, and how many of them aren't allocated.
func free(count int, allocated int64) (total, available *int32) {
	return ptr.To(int32(count)), ptr.To(int32(max(int64(count)-allocated, 0))) //nolint:gosec // a host has no 2 billion devices or CPUs
}
