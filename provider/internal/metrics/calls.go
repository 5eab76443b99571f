package metrics

import (
	"errors"
	"time"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Measured counts the calls to a host with durations and errors. Watch counts until the subscription exists.
func Measured(host string, connection hypervisor.Hypervisor) hypervisor.Hypervisor {
	return &measured{Hypervisor: connection, host: host}
}

// measured has a generated method for each call of Hypervisor but Close.
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

// Connected counts an attempt to connect to a host, as the call Connect.
func Connected(host string, began time.Time, err error) {
	observe(host, "Connect", reasonOf(err), time.Since(began))
}
