package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// GrowDisk implements hypervisor.Domains. libvirt's call would make disks smaller, too. While QEMU has the
// disk, a volume that is resized would be resized behind its back.
func (h *host) GrowDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef, capacity int64) error {
	doing := "making the disk " + ref.String() + " of the domain larger"
	return h.withDomain(ctx, doing, uuid, func(client *golibvirt.Libvirt, domain golibvirt.Domain) error {
		refuse := func(reason, cause error) error {
			return &hypervisor.Error{Operation: doing, Object: uuid, Reason: reason, Cause: cause}
		}
		state, err := stateOf(client, domain)
		if err != nil {
			return err
		}
		if !state.Active() {
			return refuse(hypervisor.ErrBusy, errors.New("it isn't active"))
		}
		disk, err := readDisk(client, domain, 0, ref)
		if err != nil {
			return err
		}
		if disk == nil || disk.Target == nil {
			return refuse(hypervisor.ErrInvalid, errors.New("it has no such disk"))
		}
		_, has, _, err := client.DomainGetBlockInfo(domain, disk.Target.Dev, 0)
		if err != nil {
			return err
		}
		if capacity < 0 || uint64(capacity) < has {
			return refuse(hypervisor.ErrInvalid, fmt.Errorf("%d bytes are less than the %d that it has", capacity, has))
		}
		if uint64(capacity) == has {
			return nil
		}
		return client.DomainBlockResize(domain, disk.Target.Dev, uint64(capacity), golibvirt.DomainBlockResizeBytes)
	})
}
