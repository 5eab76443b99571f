package libvirt

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

const (
	procDomainCreate = 9
	procListVolumes  = 282
)

// TestPoolThatHangs checks that hanging storage costs the connection for storage, and affects no other call.
func TestPoolThatHangs(t *testing.T) {
	g := NewWithT(t)
	var silent sync.Map
	silent.Store(uint32(procPoolLookup), true)
	connection := (&hostile{answer: func(procedure, _ uint32) ([]byte, bool) {
		_, is := silent.Load(procedure)
		return nil, is
	}}).connected(t, 50*time.Millisecond)
	_, err := connection.PoolVolumes(t.Context(), "default")
	g.Expect(err).To(MatchError(hypervisor.ErrTimeout))
	g.Expect(connection.lost).ToNot(BeClosed())
	g.Expect(connection.ListDomains(t.Context())).To(BeEmpty())

	silent.Clear()
	_, err = connection.Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"})
	g.Expect(err).ToNot(HaveOccurred(), "the connection for storage is opened again")
}

// TestSlowStart checks that a domain that takes minutes to start delays no other call, and that its start has a limit
// too.
func TestSlowStart(t *testing.T) {
	g := NewWithT(t)
	const limit = 100 * time.Millisecond
	connection := (&hostile{answer: func(procedure, _ uint32) ([]byte, bool) { return nil, procedure == procDomainCreate }}).connected(t, limit)
	started := make(chan error, 1)
	go func() { started <- connection.StartDomain(t.Context(), "11111111-1111-4111-8111-111111111111") }()
	begun, during := time.Now(), 0
	for ended := false; !ended; {
		g.Expect(connection.ListDomains(t.Context())).To(BeEmpty())
		select {
		case err := <-started:
			g.Expect(err).To(MatchError(hypervisor.ErrTimeout))
			ended = true
		case <-time.After(limit / 10):
			during++
		}
	}
	g.Expect(time.Since(begun)).To(BeNumerically(">", 2*limit), "its limit is higher than that of other calls")
	g.Expect(during).To(BeNumerically(">", 1))
	g.Expect(connection.lost).ToNot(BeClosed())
}

// TestVolumesAreReadConcurrently checks that several volumes of a pool are read at a time, and only those that aren't
// cached.
func TestVolumesAreReadConcurrently(t *testing.T) {
	g := NewWithT(t)
	const many, atOnce = 24, 8
	listed := func(serial uint32) []byte {
		volumes := word(many)
		for i := range many {
			volumes = slices.Concat(volumes, text("default"), text(fmt.Sprintf("v%02d", i)), text(fmt.Sprintf("/v%02d", i)))
		}
		return packet(procListVolumes, typeReply, serial, 0, volumes, word(many))
	}
	var lock sync.Mutex
	var waiting []uint32
	asked := 0
	connection := (&hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
		switch procedure {
		case procListVolumes:
			return listed(serial), true
		case procVolumeXML: // no answer until so many are requested
			lock.Lock()
			defer lock.Unlock()
			asked++
			waiting = append(waiting, serial)
			if len(waiting) < min(atOnce, many-asked+1) && asked < many {
				return nil, true
			}
			var answers []byte
			for _, one := range waiting {
				answers = append(answers, packet(procVolumeXML, typeReply, one, 0, usual(procVolumeXML))...)
			}
			waiting = nil
			return answers, true
		}
		return nil, false
	}}).connected(t, 10*time.Second)
	volumes, err := connection.PoolVolumes(t.Context(), "default")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(volumes).To(HaveLen(many))
	g.Expect(asked).To(Equal(many))

	again, err := connection.PoolVolumes(t.Context(), "default")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(again).To(Equal(volumes))
	g.Expect(asked).To(Equal(many), "cached volumes aren't read")

	changed := hypervisor.VolumeRef{Pool: "default", Name: "v07"}
	g.Expect(connection.ResizeVolume(t.Context(), changed, 2000000)).To(Succeed())
	before := asked
	_, err = connection.PoolVolumes(t.Context(), "default")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(asked).To(Equal(before+1), "the changed volume is read")
}
