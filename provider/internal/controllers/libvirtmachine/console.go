package libvirtmachine

import (
	"fmt"
	"path"
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
	return path.Join(folder, s.domainName()+"-console.log")
}

// seeConsole says how people see what the guest has written to its console, which is what they need when a machine has
// started and nothing more is heard of it.
func (s *scope) seeConsole() string {
	if s.domain != nil && s.domain.ConsoleLog != "" {
		return fmt.Sprintf("See what the guest has written to its console, on host %s: tail -n 100 %s", s.host.Name, s.domain.ConsoleLog)
	}
	return fmt.Sprintf("See the console of the guest, on host %s: virsh console %s", s.host.Name, s.domainName())
}
