package fake

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Operation is a method of hypervisor.Hypervisor by its name, or Connect.
type Operation string

// The operations that are logged and that faults can be for.
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

// callLimit is how long libvirt's client lets a call take, and startFactor how many times as long starting a domain.
const (
	callLimit   = time.Minute
	startFactor = 10
)

// limit is how long a call may take where others may take usual, or 0, and whether it has a connection of its own.
func (o Operation) limit(usual time.Duration) (limit time.Duration, own bool) {
	switch o {
	case Pools, Pool, Volume, PoolVolumes, RefreshPool, CreateVolume, ResizeVolume, DeleteVolume, UploadVolume:
		return usual, true
	case StartDomain:
		return startFactor * usual, true
	case CloneVolume: // copying takes as long as it takes
		return 0, true
	default:
		return usual, false
	}
}

// Call is a call that was made.
type Call struct {
	// Operation is which call it was.
	Operation Operation
	// Object is the UUID, pool/volume or name it was about; empty when it was about the host.
	Object string
	// Err is how it ended. nil also while it hasn't.
	Err error
}

// Effect is what a fault does to a call.
type Effect int

// The effects.
const (
	// Fail makes the call fail with the fault's reason.
	Fail Effect = iota + 1
	// Hang lets the call wait until its context ends or its limit is reached, as behind a host that went silent.
	Hang
	// Disconnect loses the connection that the call is on, with all of its watches.
	Disconnect
)

// Fault is something that goes wrong. It is used up when it has happened Times times.
type Fault struct {
	// Operation and Object are which calls it happens to; empty means any.
	Operation Operation
	Object    string
	// Skip is how many such calls go well before.
	Skip int
	// Times is how often it happens: 0 means once, a negative number always.
	Times int
	// Effect is what happens.
	Effect Effect
	// Reason is one of hypervisor's Err variables, for Fail.
	Reason error
	// AfterDone lets it happen after the call was carried out, or refused: only the answer is lost.
	AfterDone bool
}

// Inject adds a fault. Of several that fit a call, the first that was added happens.
func (h *Host) Inject(fault Fault) {
	if fault.Effect != Fail && fault.Effect != Hang && fault.Effect != Disconnect {
		panic("a fault has no effect: set it to Fail, Hang or Disconnect")
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

// ClearFaults removes all faults. Calls that hang go on hanging.
func (h *Host) ClearFaults() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.faults = nil
}

// Hanging returns how many calls hang, because of a fault.
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

// Calls returns the calls made so far, in the order in which they began.
func (h *Host) Calls() []Call {
	h.lock.Lock()
	defer h.lock.Unlock()
	calls := make([]Call, 0, len(h.calls))
	for _, call := range h.calls {
		calls = append(calls, *call)
	}
	return calls
}

// ForgetCalls empties the log.
func (h *Host) ForgetCalls() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.calls = nil
}

// fault returns the fault that happens to a call, if any, and counts it. The lock is held.
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

// happen lets a fault happen to a call on a connection, and returns how the call ends.
func (c *connection) happen(ctx context.Context, operation Operation, fault *Fault) (reason, cause error) {
	switch fault.Effect {
	case Fail:
		return fault.Reason, nil
	case Disconnect:
		c.lose()
		return hypervisor.ErrUnreachable, nil
	case Hang:
	}
	c.host.countHanging(1)
	defer c.host.countHanging(-1)
	var refused refusal
	errors.As(c.wait(ctx, operation, nil), &refused)
	return refused.reason, refused.cause
}
