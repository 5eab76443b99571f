package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"
)

// addPinning says which CPUs of the host the machine runs on. One with CPUs of its own has each virtual CPU
// on one of them, and QEMU's other threads on those that are shared, so that they don't take time of the
// guest's. All others keep off the CPUs that are kept for such machines.
func (m Machine) addPinning(domain *libvirtxml.Domain, _ platform) error {
	dedicated := m.Spec.CPU.Dedicated != nil && *m.Spec.CPU.Dedicated
	switch {
	case !dedicated && len(m.DedicatedCPUs) > 0:
		return fmt.Errorf("cpu.dedicated is false, and there are %d CPUs for it", len(m.DedicatedCPUs))
	case !dedicated:
		domain.VCPU.CPUSet = m.SharedCPUs
		return nil
	case len(m.DedicatedCPUs) != int(m.Spec.CPUs):
		return fmt.Errorf("cpu.dedicated: there are %d CPUs of the host for it, and cpus is %d", len(m.DedicatedCPUs), m.Spec.CPUs)
	}
	tune := &libvirtxml.DomainCPUTune{}
	seen := map[int]bool{}
	for i, cpu := range m.DedicatedCPUs {
		if cpu < 0 || seen[cpu] {
			return fmt.Errorf("cpu.dedicated: %d isn't the number of a CPU, or is in use by the machine already", cpu)
		}
		seen[cpu] = true
		tune.VCPUPin = append(tune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: fmt.Sprint(cpu)})
	}
	if m.SharedCPUs != "" {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: m.SharedCPUs}
	}
	domain.CPUTune = tune
	return nil
}
