package metrics

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Measured counts the calls to a host, how long they take, and how they fail. Watch counts until the subscription is
// there.
func Measured(host string, connection hypervisor.Hypervisor) hypervisor.Hypervisor {
	return &measured{Hypervisor: connection, host: host}
}

// measured has a method for each call of Hypervisor but Close.
type measured struct {
	hypervisor.Hypervisor
	host string
}

// reasons are the values of the label reason.
var reasons = map[error]string{
	hypervisor.ErrNotFound: "NotFound", hypervisor.ErrAlreadyExists: "AlreadyExists", hypervisor.ErrUnreachable: "Unreachable",
	hypervisor.ErrTimeout: "Timeout", hypervisor.ErrNoSpace: "NoSpace", hypervisor.ErrBusy: "Busy", hypervisor.ErrDenied: "Denied",
	hypervisor.ErrInvalid: "Invalid", hypervisor.ErrUnsupported: "Unsupported",
}

func reasonOf(err error) string {
	var failed *hypervisor.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failed) && reasons[failed.Reason] != "":
		return reasons[failed.Reason]
	}
	return "Other"
}

func (m *measured) ended(call string, began time.Time, err *error) {
	observe(m.host, call, reasonOf(*err), time.Since(began))
}

// Connected counts a try to connect to a host, as the call Connect.
func Connected(host string, began time.Time, err error) {
	observe(host, "Connect", reasonOf(err), time.Since(began))
}

func (m *measured) Facts(ctx context.Context) (_ hypervisor.Facts, err error) {
	defer m.ended("Facts", time.Now(), &err)
	return m.Hypervisor.Facts(ctx)
}

func (m *measured) Network(ctx context.Context, name string) (_ hypervisor.Network, err error) {
	defer m.ended("Network", time.Now(), &err)
	return m.Hypervisor.Network(ctx, name)
}

func (m *measured) HasInterface(ctx context.Context, name string) (_ bool, err error) {
	defer m.ended("HasInterface", time.Now(), &err)
	return m.Hypervisor.HasInterface(ctx, name)
}

func (m *measured) HasFilter(ctx context.Context, name string) (_ bool, err error) {
	defer m.ended("HasFilter", time.Now(), &err)
	return m.Hypervisor.HasFilter(ctx, name)
}

func (m *measured) PCIDevices(ctx context.Context) (_ []hypervisor.PCIDevice, err error) {
	defer m.ended("PCIDevices", time.Now(), &err)
	return m.Hypervisor.PCIDevices(ctx)
}

func (m *measured) Watch(ctx context.Context) (_ hypervisor.Watch, err error) {
	defer m.ended("Watch", time.Now(), &err)
	return m.Hypervisor.Watch(ctx)
}

func (m *measured) Pools(ctx context.Context) (_ []hypervisor.Pool, err error) {
	defer m.ended("Pools", time.Now(), &err)
	return m.Hypervisor.Pools(ctx)
}

func (m *measured) Pool(ctx context.Context, name string) (_ hypervisor.Pool, err error) {
	defer m.ended("Pool", time.Now(), &err)
	return m.Hypervisor.Pool(ctx, name)
}

func (m *measured) Volume(ctx context.Context, ref hypervisor.VolumeRef) (_ hypervisor.Volume, err error) {
	defer m.ended("Volume", time.Now(), &err)
	return m.Hypervisor.Volume(ctx, ref)
}

func (m *measured) PoolVolumes(ctx context.Context, pool string) (_ []hypervisor.Volume, err error) {
	defer m.ended("PoolVolumes", time.Now(), &err)
	return m.Hypervisor.PoolVolumes(ctx, pool)
}

func (m *measured) RefreshPool(ctx context.Context, pool string) (err error) {
	defer m.ended("RefreshPool", time.Now(), &err)
	return m.Hypervisor.RefreshPool(ctx, pool)
}

func (m *measured) CreateVolume(ctx context.Context, spec hypervisor.VolumeSpec) (_ hypervisor.Volume, err error) {
	defer m.ended("CreateVolume", time.Now(), &err)
	return m.Hypervisor.CreateVolume(ctx, spec)
}

func (m *measured) CloneVolume(ctx context.Context, spec hypervisor.VolumeSpec, source hypervisor.VolumeRef) (_ hypervisor.Volume, err error) {
	defer m.ended("CloneVolume", time.Now(), &err)
	return m.Hypervisor.CloneVolume(ctx, spec, source)
}

func (m *measured) UploadVolume(ctx context.Context, ref hypervisor.VolumeRef, content io.Reader, size int64) (err error) {
	defer m.ended("UploadVolume", time.Now(), &err)
	return m.Hypervisor.UploadVolume(ctx, ref, content, size)
}

func (m *measured) ResizeVolume(ctx context.Context, ref hypervisor.VolumeRef, capacity int64) (err error) {
	defer m.ended("ResizeVolume", time.Now(), &err)
	return m.Hypervisor.ResizeVolume(ctx, ref, capacity)
}

func (m *measured) DeleteVolume(ctx context.Context, ref hypervisor.VolumeRef) (err error) {
	defer m.ended("DeleteVolume", time.Now(), &err)
	return m.Hypervisor.DeleteVolume(ctx, ref)
}

func (m *measured) Domain(ctx context.Context, uuid string) (_ hypervisor.Domain, err error) {
	defer m.ended("Domain", time.Now(), &err)
	return m.Hypervisor.Domain(ctx, uuid)
}

func (m *measured) ListDomains(ctx context.Context) (_ []hypervisor.Domain, err error) {
	defer m.ended("ListDomains", time.Now(), &err)
	return m.Hypervisor.ListDomains(ctx)
}

func (m *measured) DefineDomain(ctx context.Context, definition hypervisor.Definition) (err error) {
	defer m.ended("DefineDomain", time.Now(), &err)
	return m.Hypervisor.DefineDomain(ctx, definition)
}

func (m *measured) SetAutostart(ctx context.Context, uuid string, autostart bool) (err error) {
	defer m.ended("SetAutostart", time.Now(), &err)
	return m.Hypervisor.SetAutostart(ctx, uuid, autostart)
}

func (m *measured) StartDomain(ctx context.Context, uuid string) (err error) {
	defer m.ended("StartDomain", time.Now(), &err)
	return m.Hypervisor.StartDomain(ctx, uuid)
}

func (m *measured) ShutdownDomain(ctx context.Context, uuid string) (err error) {
	defer m.ended("ShutdownDomain", time.Now(), &err)
	return m.Hypervisor.ShutdownDomain(ctx, uuid)
}

func (m *measured) ResizeDomain(ctx context.Context, uuid string, size hypervisor.Size) (err error) {
	defer m.ended("ResizeDomain", time.Now(), &err)
	return m.Hypervisor.ResizeDomain(ctx, uuid, size)
}

func (m *measured) RemoveIgnition(ctx context.Context, uuid string) (err error) {
	defer m.ended("RemoveIgnition", time.Now(), &err)
	return m.Hypervisor.RemoveIgnition(ctx, uuid)
}

func (m *measured) StopDomain(ctx context.Context, uuid string) (err error) {
	defer m.ended("StopDomain", time.Now(), &err)
	return m.Hypervisor.StopDomain(ctx, uuid)
}

func (m *measured) RemoveConsoleLog(ctx context.Context, uuid string) (err error) {
	defer m.ended("RemoveConsoleLog", time.Now(), &err)
	return m.Hypervisor.RemoveConsoleLog(ctx, uuid)
}

func (m *measured) UndefineDomain(ctx context.Context, uuid string) (err error) {
	defer m.ended("UndefineDomain", time.Now(), &err)
	return m.Hypervisor.UndefineDomain(ctx, uuid)
}

func (m *measured) DetachDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef) (err error) {
	defer m.ended("DetachDisk", time.Now(), &err)
	return m.Hypervisor.DetachDisk(ctx, uuid, ref)
}

func (m *measured) GrowDisk(ctx context.Context, uuid string, ref hypervisor.VolumeRef, capacity int64) (err error) {
	defer m.ended("GrowDisk", time.Now(), &err)
	return m.Hypervisor.GrowDisk(ctx, uuid, ref, capacity)
}

func (m *measured) Addresses(ctx context.Context, uuid string, source hypervisor.AddressSource) (_ []hypervisor.InterfaceAddress, err error) {
	defer m.ended("Addresses", time.Now(), &err)
	return m.Hypervisor.Addresses(ctx, uuid, source)
}
