package libvirt

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// reasons maps libvirt's error codes.
var reasons = map[golibvirt.ErrorNumber]error{
	golibvirt.ErrNoDomain: hypervisor.ErrNotFound, golibvirt.ErrNoNetwork: hypervisor.ErrNotFound,
	golibvirt.ErrNoStoragePool: hypervisor.ErrNotFound, golibvirt.ErrNoStorageVol: hypervisor.ErrNotFound,

	golibvirt.ErrDomExist: hypervisor.ErrAlreadyExists, golibvirt.ErrStorageVolExist: hypervisor.ErrAlreadyExists,
	golibvirt.ErrNetworkExist: hypervisor.ErrAlreadyExists,

	golibvirt.ErrNoMemory:         hypervisor.ErrNoSpace,
	golibvirt.ErrOperationInvalid: hypervisor.ErrBusy, golibvirt.ErrResourceBusy: hypervisor.ErrBusy,
	golibvirt.ErrOperationTimeout: hypervisor.ErrTimeout,

	golibvirt.ErrAuthFailed: hypervisor.ErrDenied, golibvirt.ErrAccessDenied: hypervisor.ErrDenied,
	golibvirt.ErrOperationDenied: hypervisor.ErrDenied, golibvirt.ErrAuthUnavailable: hypervisor.ErrDenied,

	golibvirt.ErrInvalidArg: hypervisor.ErrInvalid, golibvirt.ErrXMLError: hypervisor.ErrInvalid,
	golibvirt.ErrXMLDetail: hypervisor.ErrInvalid, golibvirt.ErrXMLInvalidSchema: hypervisor.ErrInvalid,
	golibvirt.ErrParseFailed: hypervisor.ErrInvalid, golibvirt.ErrInvalidMac: hypervisor.ErrInvalid,
	golibvirt.ErrCPUIncompatible: hypervisor.ErrInvalid,

	golibvirt.ErrNoSupport: hypervisor.ErrUnsupported, golibvirt.ErrConfigUnsupported: hypervisor.ErrUnsupported,
	golibvirt.ErrArgumentUnsupported: hypervisor.ErrUnsupported, golibvirt.ErrOperationUnsupported: hypervisor.ErrUnsupported,
	golibvirt.ErrAgentUnresponsive: hypervisor.ErrUnsupported, golibvirt.ErrAgentUnsynced: hypervisor.ErrUnsupported,
}

// failure converts an error of the library. Only this file and callers that know more than the code use libvirt's
// codes.
func failure(doing, object string, err error) error {
	var ours *hypervisor.Error
	if errors.As(err, &ours) {
		return err
	}
	reason, cause := classify(err)
	return &hypervisor.Error{Operation: doing, Object: object, Reason: reason, Cause: cause}
}

func classify(err error) (reason, cause error) {
	var remote golibvirt.Error
	switch {
	case errors.As(err, &remote):
		cause = errors.New(strings.TrimSpace(remote.Message))
		if reason, known := reasons[golibvirt.ErrorNumber(remote.Code)]; known { //nolint:gosec // codes are small
			return reason, cause
		}
		// libvirt has no code for this, and the errno that it sends is not decoded by the library.
		if strings.Contains(remote.Message, "No space left on device") {
			return hypervisor.ErrNoSpace, cause
		}
		return hypervisor.ErrOther, cause
	case errors.Is(err, golibvirt.ErrUnsupported):
		return hypervisor.ErrUnsupported, nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return hypervisor.ErrTimeout, err
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return hypervisor.ErrTimeout, errors.New(err.Error())
	}
	return hypervisor.ErrUnreachable, errors.New(err.Error())
}

// code reports whether an error of the library has one of the codes.
func code(err error, codes ...golibvirt.ErrorNumber) bool {
	var remote golibvirt.Error
	return errors.As(err, &remote) && slices.Contains(codes, golibvirt.ErrorNumber(remote.Code)) //nolint:gosec // codes are small
}
