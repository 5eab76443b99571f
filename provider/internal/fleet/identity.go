package fleet

import (
	"cmp"
	"fmt"
)

// OtherHypervisorError says that another hypervisor answers where a host was: spec.uri, a name or an address
// leads elsewhere now. Nothing of what it has is published, so that nothing of the host counts as gone.
type OtherHypervisorError struct {
	// Want is the UUID of the host's hypervisor, and Got that of the one that answers, or empty.
	Want, Got string
}

// Error names both.
func (e *OtherHypervisorError) Error() string {
	return fmt.Sprintf("another hypervisor answers: its UUID is %s and not %s", cmp.Or(e.Got, "unknown"), e.Want)
}

// DuplicateHypervisorError says that a hypervisor is that of another LibvirtHost already.
type DuplicateHypervisorError struct {
	// UUID of the hypervisor, and Host the name of the other LibvirtHost.
	UUID, Host string
}

// Error names both.
func (e *DuplicateHypervisorError) Error() string {
	return fmt.Sprintf("the hypervisor with the UUID %s is that of LibvirtHost %s, which was added first", e.UUID, e.Host)
}

// Refuse says why nothing new may be placed on a host although it answers, or with nil that it may again. Its
// snapshot then says that it can't be reached. Who has something there already still gets the connection.
func (f *Fleet) Refuse(host string, why error) {
	s := f.session(host)
	if s == nil || text(s.refusal()) == text(why) {
		return
	}
	s.publish(func(snapshot Snapshot) Snapshot {
		s.refused = why
		if s.connection != nil {
			snapshot.Reachable, snapshot.Err = why == nil, why
		}
		return snapshot
	})
}

func (s *session) refusal() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.refused
}

func (s *session) hypervisorUUID() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.uuid
}

// recognize reports whether the hypervisor that answers is the host's. The first one that answers is, where no UUID
// is known.
func (s *session) recognize(uuid string) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.uuid == "" {
		s.uuid = uuid
	}
	if s.uuid != uuid {
		return &OtherHypervisorError{Want: s.uuid, Got: uuid}
	}
	return nil
}
