// Package hypervisor is the interface to a libvirt host: its facts, storage pools, networks, volumes and domains, and
// events of domains.
//
// Controllers depend on this package only. Implementations, including the fake one for tests, are in other packages
// and follow the contract that is documented here.
package hypervisor

import (
	"context"
	"io"
)

// Hypervisor is one host. Its methods may be called concurrently. Each call ends when its context does, at the
// latest. Errors are of type Error.
//
// A call that failed with ErrTimeout or ErrUnreachable may have succeeded: check before repeating it (see Uncertain).
type Hypervisor interface {
	// Facts returns the properties of the host.
	Facts(ctx context.Context) (Facts, error)
	// Network returns a libvirt network by its name, or ErrNotFound.
	Network(ctx context.Context, name string) (Network, error)
	// HasInterface reports whether the host has a network interface with the name: a bridge or another device.
	// ErrUnsupported if the host can't list interfaces.
	HasInterface(ctx context.Context, name string) (bool, error)
	// HasFilter reports whether the host has a network filter with the name. ErrUnsupported if the daemon has no
	// filters.
	HasFilter(ctx context.Context, name string) (bool, error)
	// PCIDevices returns all PCI devices of the host, ordered by address. It needs a call for each device.
	PCIDevices(ctx context.Context) ([]PCIDevice, error)
	Volumes
	Domains
	// Watch subscribes to events of domains and then lists the domains, so that no change is missed. The events end
	// with the context or the connection; list again then.
	Watch(ctx context.Context) (Watch, error)
	// Close ends the connection and all watches. Pending calls fail with ErrUnreachable. Closing again does nothing.
	Close() error
}

// Volumes are a host's storage pools and their volumes.
type Volumes interface {
	// Pools returns all storage pools, ordered by name, including inactive ones.
	Pools(ctx context.Context) ([]Pool, error)
	// Pool returns a storage pool by its name, or ErrNotFound.
	Pool(ctx context.Context, name string) (Pool, error)
	// Volume returns a volume, or ErrNotFound.
	Volume(ctx context.Context, ref VolumeRef) (Volume, error)
	// PoolVolumes returns all volumes of a pool, ordered by name, or ErrNotFound. Sizes that others have changed may
	// be some minutes old.
	PoolVolumes(ctx context.Context, pool string) ([]Volume, error)
	// RefreshPool makes the host read the content and free space of a pool again, or returns ErrNotFound.
	RefreshPool(ctx context.Context, pool string) error
	// CreateVolume creates an empty volume, or an overlay, and returns it. If the name exists, it changes nothing and
	// returns ErrAlreadyExists: only one of several callers succeeds. ErrNotFound if the pool doesn't exist.
	CreateVolume(ctx context.Context, spec VolumeSpec) (Volume, error)
	// CloneVolume creates a full copy of another volume of the same host, at least as large. The call returns when
	// the copy is complete. After a failure the host may continue copying or keep an incomplete copy: mark the volume
	// as good only after success.
	CloneVolume(ctx context.Context, spec VolumeSpec, source VolumeRef) (Volume, error)
	// UploadVolume writes content to the beginning of a volume. Content that isn't exactly size bytes long is an
	// error, and the volume's content is then undefined. With UnknownSize all of content is written, and a raw volume
	// grows with it. If the context ends during a read of content, content may be read once more afterwards. The host
	// verifies nothing: hash the content, and mark the volume as good only after success.
	UploadVolume(ctx context.Context, ref VolumeRef, content io.Reader, size int64) error
	// ResizeVolume grows a volume. ErrInvalid if it would shrink.
	ResizeVolume(ctx context.Context, ref VolumeRef, capacity int64) error
	// DeleteVolume deletes a volume, even one that a running domain uses, or returns ErrNotFound.
	DeleteVolume(ctx context.Context, ref VolumeRef) error
}

// Domains are a host's virtual machines. All methods with a UUID return ErrNotFound if the domain doesn't exist.
type Domains interface {
	// Domain returns a domain by its UUID.
	Domain(ctx context.Context, uuid string) (Domain, error)
	// ListDomains returns all domains, ordered by UUID, including foreign ones.
	ListDomains(ctx context.Context) ([]Domain, error)
	// DefineDomain creates a domain, or changes the one with the same name and UUID. ErrAlreadyExists if another
	// domain has the name or the UUID.
	DefineDomain(ctx context.Context, definition Definition) error
	// SetAutostart sets whether the domain starts with its host.
	SetAutostart(ctx context.Context, uuid string, autostart bool) error
	// StartDomain starts a domain that isn't active.
	StartDomain(ctx context.Context, uuid string) error
	// ShutdownDomain asks the guest of an active domain to shut down, by its agent or the power button, and doesn't
	// wait for it. The guest may ignore the request.
	ShutdownDomain(ctx context.Context, uuid string) error
	// ResizeDomain changes only the size in the definition of a domain. An active domain has the new size after its
	// next start.
	ResizeDomain(ctx context.Context, uuid string, size Size) error
	// RemoveIgnition removes only the Ignition configuration, if any, from the definition of a domain: the domain
	// doesn't need the file at its next start.
	RemoveIgnition(ctx context.Context, uuid string) error
	// StopDomain powers off an active domain.
	StopDomain(ctx context.Context, uuid string) error
	// RemoveConsoleLog deletes the console log in the definition of an inactive domain, and its older parts. ErrBusy
	// if the domain is active. It does nothing if there is no log, or its name isn't ConsoleLogName.
	RemoveConsoleLog(ctx context.Context, uuid string) error
	// UndefineDomain deletes an inactive domain with its firmware variables and TPM state, but not its disks and
	// console log. ErrBusy if it is active.
	UndefineDomain(ctx context.Context, uuid string) error
	// DetachDisk removes a disk from the running domain and from its definition, so that its volume can be deleted.
	// ErrBusy as long as the guest hasn't released it: call again.
	// It does nothing if the domain has no such disk.
	DetachDisk(ctx context.Context, uuid string, ref VolumeRef) error
	// GrowDisk grows a disk of an active domain, which its guest sees at once. ErrInvalid if the disk would shrink or
	// doesn't exist, and ErrBusy if the domain isn't active: resize the volume then.
	GrowDisk(ctx context.Context, uuid string, ref VolumeRef, capacity int64) error
	// Addresses returns the IP addresses of a domain's interfaces from one source, if any. ErrUnsupported if no guest
	// agent answers.
	Addresses(ctx context.Context, uuid string, source AddressSource) ([]InterfaceAddress, error)
}

// Coalesce passes UUIDs on. A sender never waits, and each UUID is queued at most once, so that a slow reader sees
// fewer changes and the queue stays small. When in is closed, the queue is dropped and the result is closed.
func Coalesce(in <-chan string) <-chan string {
	out := make(chan string)
	go func() {
		defer close(out)
		var waiting []string
		queued := map[string]bool{}
		for {
			var next string
			var send chan<- string
			if len(waiting) > 0 {
				next, send = waiting[0], out
			}
			select {
			case uuid, open := <-in:
				if !open {
					return
				}
				if !queued[uuid] {
					queued[uuid] = true
					waiting = append(waiting, uuid)
				}
			case send <- next:
				waiting = waiting[1:]
				delete(queued, next)
			}
		}
	}()
	return out
}
