package libvirt

import (
	"context"
	"fmt"
	"path"
	"slices"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// RemoveConsoleLog implements hypervisor.Domains.
//
// libvirt can't delete a file outside of storage pools, and the log must not be in a pool: libvirt interprets the
// first bytes of files in pools, and the guest controls those of the log. But undefining a domain deletes its file of
// firmware variables. So a second domain is defined with the console log as that file, and undefined. It is never
// started, and always has the same name and UUID, so that the next attempt replaces an interrupted one.
func (h *host) RemoveConsoleLog(ctx context.Context, id string) error {
	const doing = "deleting the console log of the domain"
	return withDomain(ctx, &h.calls, doing, id, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		if err := inactive(client, domain, doing, id); err != nil {
			return err
		}
		text, err := client.DomainGetXMLDesc(domain, golibvirt.DomainXMLInactive)
		if err != nil {
			return err
		}
		read, err := hypervisor.ReadDomainXML(text)
		if err != nil {
			return &hypervisor.Error{Operation: doing, Object: id, Reason: hypervisor.ErrInvalid, Cause: err}
		}
		if path.Base(read.ConsoleLog) != hypervisor.ConsoleLogName(read.Name) {
			return nil
		}
		holder, err := logHolder(text, read.UUID)
		if err != nil {
			return &hypervisor.Error{Operation: doing, Object: id, Reason: hypervisor.ErrInvalid, Cause: err}
		}
		return removeLog(client, doing, holder, read.ConsoleLog)
	})
}

// logHolder returns a minimal domain with the type and emulator of another one.
func logHolder(text, id string) (*libvirtxml.Domain, error) {
	var of libvirtxml.Domain
	if err := of.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("reading a domain's XML: %w", err)
	}
	holder := &libvirtxml.Domain{
		Type: of.Type, Name: "caplv-console-log-" + id, UUID: uuid.NewSHA1(uuid.NameSpaceOID, []byte("console log of "+id)).String(),
		Memory: &libvirtxml.DomainMemory{Value: 1, Unit: "MiB"}, OS: &libvirtxml.DomainOS{},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}, // firmware needs it on amd64
	}
	if of.OS != nil {
		holder.OS.Type = of.OS.Type
	}
	if of.Devices != nil {
		holder.Devices = &libvirtxml.DomainDeviceList{Emulator: of.Devices.Emulator}
	}
	return holder, nil
}

// maxLogParts is the maximum number of parts of a log. virtlogd keeps three by default.
const maxLogParts = 100

// removeLog deletes a log and its older parts NAME.0, NAME.1 and so on. It begins with the oldest part, so that the
// next attempt finds all parts that an interrupted one has left.
func removeLog(client *golibvirt.Libvirt, doing string, holder *libvirtxml.Domain, file string) error {
	parts := []string{file}
	for {
		// Without a flag, libvirt refuses to undefine the domain if the file exists.
		err := defineAndUndefine(client, holder, parts[len(parts)-1], 0)
		if err == nil {
			break
		}
		if !code(err, golibvirt.ErrOperationInvalid) {
			return err
		}
		if len(parts) == maxLogParts {
			return &hypervisor.Error{Operation: doing, Object: file, Reason: hypervisor.ErrInvalid, Cause: fmt.Errorf("it has more than %d parts", maxLogParts)}
		}
		parts = append(parts, fmt.Sprintf("%s.%d", file, len(parts)-1))
	}
	for _, part := range slices.Backward(parts[:len(parts)-1]) {
		if err := defineAndUndefine(client, holder, part, golibvirt.DomainUndefineNvram); err != nil {
			return err
		}
	}
	return nil
}

// defineAndUndefine defines a domain that has its firmware variables in a file, and undefines it.
func defineAndUndefine(client *golibvirt.Libvirt, holder *libvirtxml.Domain, file string, flags golibvirt.DomainUndefineFlagsValues) error {
	holder.OS.Loader = &libvirtxml.DomainLoader{Path: "/dev/null", Readonly: "yes", Type: "pflash"}
	holder.OS.NVRam = &libvirtxml.DomainNVRam{NVRam: file}
	text, err := holder.Marshal()
	if err != nil {
		return fmt.Errorf("writing a domain's XML: %w", err)
	}
	defined, err := client.DomainDefineXMLFlags(text, golibvirt.DomainDefineValidate)
	if err != nil {
		return err
	}
	return client.DomainUndefineFlags(defined, flags)
}
