package fake

import (
	"context"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Operation is a method of hypervisor.Hypervisor by its name, or Connect.
type Operation string

// The operations in the log, which faults can affect.
const (
	Connect          Operation = "Connect"
	Facts            Operation = "Facts"
	Network          Operation = "Network"
	HasInterface     Operation = "HasInterface"
	HasFilter        Operation = "HasFilter"
	PCIDevices       Operation = "PCIDevices"
	NewWatch         Operation = "Watch"
	Pools            Operation = "Pools"
	Pool             Operation = "Pool"
	Volume           Operation = "Volume"
	PoolVolumes      Operation = "PoolVolumes"
	RefreshPool      Operation = "RefreshPool"
	CreateVolume     Operation = "CreateVolume"
	CloneVolume      Operation = "CloneVolume"
	UploadVolume     Operation = "UploadVolume"
	ResizeVolume     Operation = "ResizeVolume"
	DeleteVolume     Operation = "DeleteVolume"
	Domain           Operation = "Domain"
	ListDomains      Operation = "ListDomains"
	DefineDomain     Operation = "DefineDomain"
	SetAutostart     Operation = "SetAutostart"
	StartDomain      Operation = "StartDomain"
	ShutdownDomain   Operation = "ShutdownDomain"
	ResizeDomain     Operation = "ResizeDomain"
	RemoveIgnition   Operation = "RemoveIgnition"
	StopDomain       Operation = "StopDomain"
	RemoveConsoleLog Operation = "RemoveConsoleLog"
	UndefineDomain   Operation = "UndefineDomain"
	DetachDisk       Operation = "DetachDisk"
	GrowDisk         Operation = "GrowDisk"
	DomainAddresses  Operation = "Addresses"
)

// callLimit is the time limit of calls in libvirt's client, and startFactor the factor of it for starting a domain.
const (
	callLimit   = time.Minute
	startFactor = 10
)

// limit returns the time limit of a call, or 0 for none, and whether the call has a separate connection.
func (o Operation) limit(usual time.Duration) (limit time.Duration, own bool) {
	switch o {
	case Pools, Pool, Volume, PoolVolumes, RefreshPool, CreateVolume, ResizeVolume, DeleteVolume, UploadVolume:
		return usual, true
	case StartDomain:
		return startFactor * usual, true
	case CloneVolume: // copying has no time limit
		return 0, true
	default:
		return usual, false
	}
}

// Call is an entry of the log.
type Call struct {
	// Operation is the called method.
	Operation Operation
	// Object is the UUID, pool/volume or name of the call's object, or empty for the host.
	Object string
	// Err is the result. It is nil also before the end of the call.
	Err error
}

// Effect is what a fault does to a call.
type Effect int

// The effects.
const (
	// Fail returns the fault's reason from the call.
	Fail Effect = iota + 1
	// Hang lets the call wait until its context ends or its limit is reached, as behind a silent host.
	Hang
	// Disconnect closes the connection of the call, with all of its watches.
	Disconnect
)

// Fault is a fault of a call. It is used up after Times calls.
type Fault struct {
	// Operation and Object select the affected calls. An empty value means any.
	Operation Operation
	Object    string
	// Skip is the number of selected calls that succeed first.
	Skip int
	// Times is the number of affected calls: 0 means once, a negative number always.
	Times int
	// Effect on the call.
	Effect Effect
	// Reason is one of package hypervisor's Err variables, for Fail.
	Reason error
	// AfterDone applies the effect after the call was processed: only the answer is lost.
	AfterDone bool
}

// Inject adds a fault. If several faults select a call, the first one that was added applies.
func (h *Host) Inject(fault Fault) {
	if fault.Effect != Fail && fault.Effect != Hang && fault.Effect != Disconnect {
		panic("a fault has no effect: set Effect to Fail, Hang or Disconnect")
	}
	if (fault.Effect == Fail) != (fault.Reason != nil) {
		panic("a fault has a reason if, and only if, its effect is Fail")
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.faults = append(h.faults, &fault)
}

// ClearFaults removes all faults. Hanging calls still hang.
func (h *Host) ClearFaults() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.faults = nil
}

// Hanging returns the number of calls that hang because of a fault.
func (h *Host) Hanging() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.hanging
}

func (h *Host) countHanging(by int) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.hanging += by
}

// Calls returns the log of calls in the order of their beginnings.
func (h *Host) Calls() []Call {
	h.lock.Lock()
	defer h.lock.Unlock()
	calls := make([]Call, 0, len(h.calls))
	for _, call := range h.calls {
		calls = append(calls, *call)
	}
	return calls
}

// ForgetCalls clears the log.
func (h *Host) ForgetCalls() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.calls = nil
}

// fault returns the fault that applies to a call, if any, and counts it. The lock is held.
func (h *Host) fault(operation Operation, object string) *Fault {
	for i, fault := range h.faults {
		if fault.Operation != "" && fault.Operation != operation || fault.Object != "" && fault.Object != object {
			continue
		}
		if fault.Skip > 0 {
			fault.Skip--
			continue
		}
		if fault.Times > 0 {
			fault.Times--
		}
		if fault.Times == 0 {
			h.faults = slices.Delete(h.faults, i, i+1)
		}
		return fault
	}
	return nil
}

// happen applies a fault to a call on a connection, and returns the error of the call.
func (c *connection) happen(ctx context.Context, operation Operation, fault *Fault) error {
	switch fault.Effect {
	case Fail:
		return refuse(fault.Reason, "")
	case Disconnect:
		c.lose()
		return refuse(hypervisor.ErrUnreachable, "")
	case Hang:
	}
	c.host.countHanging(1)
	defer c.host.countHanging(-1)
	return c.wait(ctx, operation, nil)
}
