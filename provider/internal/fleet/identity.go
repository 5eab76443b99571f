package fleet

import (
	"cmp"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// OtherHypervisorError says that another hypervisor answers for a host: the URI, name or address now leads to it. Its
// state isn't published, so that no object of the host seems to be missing.
type OtherHypervisorError struct {
	// Want is the UUID of the host's hypervisor, and Got that of the other one, or empty.
	Want, Got string
}

// Error names both UUIDs.
func (e *OtherHypervisorError) Error() string {
	return fmt.Sprintf("another hypervisor answers: its UUID is %s and not %s", cmp.Or(e.Got, "unknown"), e.Want)
}

// DuplicateHypervisorError says that another LibvirtHost has the hypervisor.
type DuplicateHypervisorError struct {
	// UUID of the hypervisor, and Host the name of the other LibvirtHost.
	UUID, Host string
}

// Error names the UUID and the host.
func (e *DuplicateHypervisorError) Error() string {
	return fmt.Sprintf("the hypervisor with the UUID %s belongs to LibvirtHost %s, which was added first", e.UUID, e.Host)
}

// Refuse makes a host unreachable in its snapshot, although it answers, or ends that if why is nil. Machines on the
// host still get the connection.
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

// recognize returns an error if the hypervisor isn't the host's. Without a known UUID the first one is accepted.
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

// Rotation returns why a host's new credentials can't be used, or nil if they are in use or not tried yet.
func (f *Fleet) Rotation(host string) error {
	f.lock.Lock()
	candidate := f.candidates[host]
	f.lock.Unlock()
	if candidate == nil {
		return nil
	}
	candidate.lock.Lock()
	defer candidate.lock.Unlock()
	return candidate.snapshot.Err
}

// IsOpen reports whether there is a connection to a target, with any credentials.
func (f *Fleet) IsOpen(host string, target Target) bool {
	s := f.session(host)
	return s != nil && s.isOpen() && s.target.samePlace(target)
}

func (s *session) isOpen() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.connection != nil
}

// dropCandidate ends the session with new credentials, if any. The lock is held.
func (f *Fleet) dropCandidate(host string) {
	if candidate, exists := f.candidates[host]; exists {
		delete(f.candidates, host)
		candidate.end()
	}
}

// promote replaces the session with old credentials by the one with new ones. The new session calls it with its
// connection, and the old one after it has lost its own. It reports whether there was a new session.
func (f *Fleet) promote(by *session, connection hypervisor.Hypervisor) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	candidate, old := f.candidates[by.host], f.sessions[by.host]
	if candidate == nil || by != old && (by != candidate || connection == nil) {
		return false
	}
	delete(f.candidates, by.host)
	f.sessions[by.host] = candidate
	candidate.takeOver(old.end(), old.refusal(), connection)
	f.news.tell(by.host, change{host: true})
	return true
}

// takeOver sets the state of the replaced session.
func (s *session) takeOver(last Snapshot, refused error, connection hypervisor.Hypervisor) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.snapshot.Err != nil && last.Err != nil {
		last.Err = s.snapshot.Err // why the new credentials aren't good is what matters now
	}
	s.snapshot, s.refused, s.connection = last, refused, connection
}
