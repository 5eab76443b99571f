package soak

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/world"
)

const uuidLength = 36

var (
	uuids        = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	macAddresses = regexp.MustCompile(`<mac address=["']([0-9a-f:]+)["']`)
)

var errOwner = errors.New("another owner than the LibvirtMachine")

func isUUID(text string) bool { return uuids.MatchString(text) }

// replaceDamaged deletes the damaged Machines, as a MachineHealthCheck does.
func (s *soak) replaceDamaged() error {
	for _, infra := range s.LibvirtMachines() {
		if !s.damaged[uuidOf(&infra)] {
			continue
		}
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: infra.Namespace, Name: infra.Name}}
		if err := client.IgnoreNotFound(s.Client.Delete(s.t.Context(), machine)); err != nil {
			return err
		}
	}
	return nil
}

func uuidOf(infra *infrav1.LibvirtMachine) string {
	return strings.TrimPrefix(infra.Spec.ProviderID, infrav1.ProviderIDPrefix)
}

// agreement returns the differences between the hosts and the API server, or nil.
func (s *soak) agreement() error {
	var errs []error
	wrong := func(format string, values ...any) { errs = append(errs, fmt.Errorf(format, values...)) }

	machines := s.LibvirtMachines()
	count := map[string]int{}
	byUUID := map[string]*infrav1.LibvirtMachine{}
	for i := range machines {
		infra := &machines[i]
		count[infra.Labels[clusterv1.MachineDeploymentNameLabel]]++
		if problem := unfinished(infra); problem != "" {
			wrong("%s: %s", infra.Name, problem)
		}
		uuid := uuidOf(infra)
		if other := byUUID[uuid]; other != nil {
			wrong("%s and %s have the same provider ID %s", infra.Name, other.Name, infra.Spec.ProviderID)
		}
		if s.damaged[uuid] {
			wrong("%s was damaged and isn't replaced", infra.Name)
		}
		byUUID[uuid] = infra
	}
	for _, deployment := range s.deployments {
		if want := int(*deployment.Spec.Replicas); count[deployment.Name] != want {
			wrong("the MachineDeployment %s has %d machines, want %d", deployment.Name, count[deployment.Name], want)
		}
		delete(count, deployment.Name)
	}
	for name, number := range count {
		wrong("%d machines belong to the deleted MachineDeployment %q", number, name)
	}
	if machinesOfCore := s.Machines(); len(machinesOfCore) != len(machines) {
		wrong("there are %d Machines and %d LibvirtMachines", len(machinesOfCore), len(machines))
	}

	macs, hostOf := map[string]string{}, map[string]string{}
	for _, host := range s.Hosts {
		volumes, domains := host.Left()
		for _, uuid := range domains {
			if other := hostOf[uuid]; other != "" {
				wrong("domain %s is on %s and on %s", uuid, other, host.Name)
			}
			hostOf[uuid] = host.Name
			errs = append(errs, judgeDomain(host, uuid, byUUID[uuid], macs)...)
		}
		errs = append(errs, s.judgeVolumes(host, volumes, byUUID)...)
	}
	for uuid, infra := range byUUID {
		if hostOf[uuid] == "" {
			wrong("%s has no domain", infra.Name)
		}
	}
	errs = append(errs, s.judgeCounts(machines), s.judgeLedger(machines))
	return errors.Join(errs...)
}

// unfinished returns what a machine lacks, or that it is being deleted.
func unfinished(infra *infrav1.LibvirtMachine) string {
	switch {
	case !infra.DeletionTimestamp.IsZero():
		return "is being deleted"
	case infra.Spec.HostName == "" || infra.Spec.ProviderID == "":
		return "isn't bound"
	case !ptr.Deref(infra.Status.Initialization.Provisioned, false):
		return "isn't provisioned"
	case !conditions.IsTrue(infra, infrav1.ReadyCondition):
		return "isn't Ready: " + conditions.GetMessage(infra, infrav1.ReadyCondition)
	case !conditions.IsTrue(infra, infrav1.SeedRemovedCondition):
		return "has a seed"
	case len(infra.Status.Addresses) == 0:
		return "has no address"
	}
	return ""
}

func judgeDomain(host *world.Host, uuid string, infra *infrav1.LibvirtMachine, macs map[string]string) []error {
	if infra == nil {
		return []error{fmt.Errorf("the domain %s on %s belongs to no machine", uuid, host.Name)}
	}
	var errs []error
	if infra.Spec.HostName != host.Name {
		errs = append(errs, fmt.Errorf("%s is bound to %s and its domain is on %s", infra.Name, infra.Spec.HostName, host.Name))
	}
	if state := host.State(uuid); state != hypervisor.StateRunning {
		errs = append(errs, fmt.Errorf("the domain of %s is %s", infra.Name, state))
	}
	text, autostart := host.DomainXML(uuid)
	if !autostart {
		errs = append(errs, fmt.Errorf("the domain of %s doesn't start with its host", infra.Name))
	}
	domain, err := hypervisor.ReadDomainXML(text)
	if err != nil || domain.Owner == nil || domain.Owner.Namespace != infra.Namespace || domain.Owner.Name != infra.Name {
		errs = append(errs, fmt.Errorf("the domain of %s has the owner %v: %w", infra.Name, domain.Owner, errors.Join(err, errOwner)))
	}
	for _, mac := range macAddresses.FindAllStringSubmatch(text, -1) {
		if other := macs[mac[1]]; other != "" {
			errs = append(errs, fmt.Errorf("%s and %s have the MAC address %s", infra.Name, other, mac[1]))
		}
		macs[mac[1]] = infra.Name
	}
	return errs
}

// judgeVolumes returns the missing and the superfluous volumes of a host. Incomplete copies of images from a killed
// manager may stay until their machine is deleted, and contents of images until they are collected.
func (s *soak) judgeVolumes(host *world.Host, volumes []hypervisor.VolumeRef, machines map[string]*infrav1.LibvirtMachine) []error {
	wanted := map[string]bool{world.ImageVolume.Name: true}
	for uuid, infra := range machines {
		if infra.Spec.HostName != host.Name {
			continue
		}
		prefix := hypervisor.VolumePrefix(uuid, infra.Namespace, infra.Name)
		wanted[prefix+"root"] = true
		for _, disk := range infra.Spec.ExtraDisks {
			wanted[prefix+"disk-"+disk.Name] = true
		}
	}
	var errs []error
	copies := map[string]bool{}
	for _, ref := range volumes {
		if wanted[ref.Name] {
			delete(wanted, ref.Name)
			continue
		}
		uuid := ref.Name[:min(len(ref.Name), uuidLength)]
		infra := machines[uuid]
		switch {
		case strings.HasPrefix(ref.Name, "caplv-image-"), strings.HasPrefix(ref.Name, world.ManagerMarker):
		case infra != nil && infra.Spec.HostName == host.Name && infra.Spec.RootDisk.Clone == infrav1.CloneFull && strings.HasPrefix(ref.Name, hypervisor.VolumePrefix(uuid, infra.Namespace, infra.Name)+"root."):
			copies[uuid] = true
		default:
			errs = append(errs, fmt.Errorf("the volume %s on %s belongs to no machine", ref, host.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		errs = append(errs, fmt.Errorf("%s lacks the volume %s", host.Name, name))
	}
	for uuid, infra := range machines {
		if infra.Spec.HostName == host.Name && infra.Spec.RootDisk.Clone == infrav1.CloneFull && !copies[uuid] {
			errs = append(errs, fmt.Errorf("%s has no copy of the image", infra.Name))
		}
	}
	return errs
}
