package fleet

import "github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"

// Rotation says why the new credentials of a host haven't taken the place of those that its connection was opened
// with. nil when they have, or when that isn't known so far.
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

// IsOpen reports whether there is a connection to the place of a target, whatever its credentials are.
func (f *Fleet) IsOpen(host string, target Target) bool {
	s := f.session(host)
	return s != nil && s.isOpen() && s.target.samePlace(target)
}

func (s *session) isOpen() bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.connection != nil
}

// dropCandidate ends the session with new credentials, if there is one. The lock is held.
func (f *Fleet) dropCandidate(host string) {
	if candidate, there := f.candidates[host]; there {
		delete(f.candidates, host)
		candidate.end()
	}
}

// promote lets the session with new credentials take the place of the one with the old ones. It is called by the
// first with its connection, and by the second when it has lost its own. It reports whether there was such a session.
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

// takeOver makes what another session has seen last what this one has.
func (s *session) takeOver(last Snapshot, refused error, connection hypervisor.Hypervisor) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.snapshot.Err != nil && last.Err != nil {
		last.Err = s.snapshot.Err // why the new credentials aren't good is what matters now
	}
	s.snapshot, s.refused, s.connection = last, refused, connection
}
