// Package hypervisor says in this provider's words what a libvirt host is asked for: its facts,
// storage pools, networks, volumes, domains, and news of domains.
//
// Controllers know this package only. What speaks to a host, and what pretends to, are packages
// below it, and both are held to the contract that is written here.
package hypervisor

import (
	"context"
	"io"
)

// Hypervisor is one host. Its methods may be called from several goroutines at once. Each call ends
// at the latest when its context does, and its errors are of type Error.
//
// A call that failed with ErrTimeout or ErrUnreachable may have been carried out all the same: look
// before doing it again (see Uncertain).
type Hypervisor interface {
	// Facts returns what the host has and can do.
	Facts(ctx context.Context) (Facts, error)
	// Network returns a libvirt network by its name, or ErrNotFound.
	Network(ctx context.Context, name string) (Network, error)
	// HasInterface says whether the host has a network interface of a name: a bridge, or a device that
	// machines can be on. ErrUnsupported when the host can't tell.
	HasInterface(ctx context.Context, name string) (bool, error)
	// HasFilter says whether the host has a network filter of a name. ErrUnsupported when its daemon knows no filters.
	HasFilter(ctx context.Context, name string) (bool, error)
	// PCIDevices returns all PCI devices of the host, ordered by address. It takes a call for each of them.
	PCIDevices(ctx context.Context) ([]PCIDevice, error)
	Volumes
	Domains
	// Watch subscribes to news of domains, and lists the domains only then: what happens between
	// the two is in the list, in the news, or in both. There are no more news when the context ends
	// or the connection is lost; then list again.
	Watch(ctx context.Context) (Watch, error)
	// Close ends the connection and all watches. Calls that wait fail with ErrUnreachable. To close
	// again does nothing.
	Close() error
}

// Volumes are a host's storage pools and what is in them.
type Volumes interface {
	// Pools returns all storage pools, ordered by name, those that aren't active too.
	Pools(ctx context.Context) ([]Pool, error)
	// Pool returns a storage pool by its name, or ErrNotFound.
	Pool(ctx context.Context, name string) (Pool, error)
	// Volume returns a volume. ErrNotFound when the pool or the volume isn't there.
	Volume(ctx context.Context, ref VolumeRef) (Volume, error)
	// PoolVolumes returns all volumes of a pool, ordered by name. ErrNotFound when there is no such pool. How large
	// they are, and what they take, may be as it was some minutes ago, where others have changed it.
	PoolVolumes(ctx context.Context, pool string) ([]Volume, error)
	// RefreshPool lets the host look at what is in a pool: what others have put there, and how much is free.
	// ErrNotFound when there is no such pool.
	RefreshPool(ctx context.Context, pool string) error
	// CreateVolume makes an empty volume, or an overlay of another one, and returns it. Nothing is
	// changed and the error is ErrAlreadyExists when the name is taken: only one of several callers
	// succeeds. ErrNotFound when the pool isn't there.
	CreateVolume(ctx context.Context, spec VolumeSpec) (Volume, error)
	// CloneVolume makes a volume that holds a full copy of another volume of the same host, and is at
	// least as large. It takes as long as copying takes. When the caller gives up, the host may go on
	// copying, and when the host stops, half a copy may stay: mark the volume as good only after success.
	CloneVolume(ctx context.Context, spec VolumeSpec, source VolumeRef) (Volume, error)
	// UploadVolume writes content to the beginning of a volume. It is an error when content ends
	// before size bytes or goes on after them, and the volume's content is then undefined. With
	// UnknownSize all that content has is written, and the capacity of a raw volume grows with it. When the
	// context ends while content is being waited for, content may be read once more afterwards. The host
	// verifies nothing: hash content on its way, and mark the volume as good only after success.
	UploadVolume(ctx context.Context, ref VolumeRef, content io.Reader, size int64) error
	// ResizeVolume makes a volume larger. ErrInvalid when it would become smaller.
	ResizeVolume(ctx context.Context, ref VolumeRef, capacity int64) error
	// DeleteVolume removes a volume, even one that a running domain uses. ErrNotFound when it isn't there.
	DeleteVolume(ctx context.Context, ref VolumeRef) error
}

// Domains are a host's virtual machines. All methods that take a UUID fail with ErrNotFound when
// there is no such domain.
type Domains interface {
	// Domain returns a domain by its UUID.
	Domain(ctx context.Context, uuid string) (Domain, error)
	// ListDomains returns all domains, ordered by UUID, those that aren't ours too.
	ListDomains(ctx context.Context) ([]Domain, error)
	// DefineDomain makes a domain, or changes the one of the same name and UUID. ErrAlreadyExists
	// when another domain has the name or the UUID.
	DefineDomain(ctx context.Context, definition Definition) error
	// SetAutostart says whether the domain starts when its host does.
	SetAutostart(ctx context.Context, uuid string, autostart bool) error
	// StartDomain starts a domain. Nothing happens to one that is active already.
	StartDomain(ctx context.Context, uuid string) error
	// ShutdownDomain asks the guest of a domain to shut down, by its agent or as a power button does, and
	// doesn't wait until it has. A guest may take its time, or ignore it. Nothing happens to one that
	// isn't active.
	ShutdownDomain(ctx context.Context, uuid string) error
	// ResizeDomain gives the definition of a domain another size, and leaves everything else in it as it
	// is. A domain that is active has the new size from its next start on.
	ResizeDomain(ctx context.Context, uuid string, size Size) error
	// RemoveIgnition takes the Ignition configuration from the definition of a domain, and leaves everything
	// else in it as it is: the domain doesn't need the file at its next start. Nothing happens to a domain
	// that has none.
	RemoveIgnition(ctx context.Context, uuid string) error
	// StopDomain takes the power from a domain. Nothing happens to one that isn't active.
	StopDomain(ctx context.Context, uuid string) error
	// RemoveConsoleLog deletes what the guest of a domain that isn't active has written to its console: the file that
	// the definition names, and its older parts. ErrBusy when the domain is active. Nothing happens when the definition
	// names no file, or one that doesn't have ConsoleLogName.
	RemoveConsoleLog(ctx context.Context, uuid string) error
	// UndefineDomain removes a domain that isn't active, with its firmware variables and TPM state,
	// and without its disks and its console log. ErrBusy when it is active.
	UndefineDomain(ctx context.Context, uuid string) error
	// DetachDisk takes a disk from the domain, both from the running one and from its definition, so
	// that its volume can be deleted. ErrBusy as long as the guest hasn't released it: call again.
	// Nothing happens when the domain has no such disk.
	DetachDisk(ctx context.Context, uuid string, ref VolumeRef) error
	// GrowDisk makes a disk of an active domain larger, which its guest sees at once. Nothing happens to
	// one that is as large already. ErrInvalid when it would become smaller or the domain has no such
	// disk, and ErrBusy when the domain isn't active: resize the volume then.
	GrowDisk(ctx context.Context, uuid string, ref VolumeRef, capacity int64) error
	// Addresses returns the IP addresses of a domain's interfaces as one source knows them; none is
	// not an error. ErrUnsupported when the domain has no guest agent or none that answers.
	Addresses(ctx context.Context, uuid string, source AddressSource) ([]InterfaceAddress, error)
}
