package libvirtmachine

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// consoleLog is the file that libvirt keeps what the guest writes to its console in, or nothing.
//
// It is in no storage pool. libvirt reads the headers of all files in the folder of a pool each time that it refreshes
// the pool, and opens what the headers say that the files are overlays of. A guest that writes such a header to its
// console, with the path of a named pipe, would stop all storage of its host.
func (s *scope) consoleLog() string {
	folder := s.host.Spec.ConsoleLogFolder
	if folder == "" || s.snapshot.PoolAt(folder) != "" {
		return ""
	}
	return path.Join(folder, hypervisor.ConsoleLogName(s.domainName()))
}

// seeConsole says how people see what the guest has written to its console, which is what they need when a machine has
// started and nothing more is heard of it.
func (s *scope) seeConsole() string {
	if s.domain != nil && s.domain.ConsoleLog != "" {
		return fmt.Sprintf("See what the guest has written to its console, on host %s: tail -n 100 %s", s.host.Name, s.domain.ConsoleLog)
	}
	return fmt.Sprintf("See the console of the guest, on host %s: virsh console %s", s.host.Name, s.domainName())
}

// consoleLogPatience is how long after the beginning of its deletion a machine waits for its host to delete the console log.
const consoleLogPatience = 5 * time.Minute

// removeConsoleLog deletes what the guest has written to its console. The domain is stopped. A host that goes on refusing
// that keeps the file: the machine is deleted all the same, and an event says where the file is.
func (s *scope) removeConsoleLog(ctx context.Context) error {
	file := s.domain.ConsoleLog
	if file == "" {
		return nil
	}
	err := s.connection.RemoveConsoleLog(ctx, s.uuid)
	if err == nil || errors.Is(err, hypervisor.ErrNotFound) {
		return nil
	}
	deleted := s.infra.DeletionTimestamp
	if hypervisor.Uncertain(err) || errors.Is(err, hypervisor.ErrBusy) || deleted != nil && time.Since(deleted.Time) < consoleLogPatience {
		return err
	}
	s.recorder.Eventf(s.infra, nil, corev1.EventTypeWarning, "ConsoleLogStays", "Delete", "The file %s stays on host %s: %s", file, s.host.Name, err.Error())
	return nil
}
