package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Procedures of libvirt's protocol that the daemon in this file implements.
const (
	procOpen         = 1
	procNetworkXML   = 43
	procNetwork      = 46
	procAuth         = 66
	procPoolLookup   = 84
	procVolumeLookup = 95
	procVolumeXML    = 99
	procVersion      = 157
	procFilter       = 175
	procDomains      = 273
	procSubscribe    = 316
)

// hostile is a daemon in this process with answers chosen by a test.
type hostile struct {
	// answer returns the bytes to send for a call. ok is false for the usual answer.
	answer func(procedure, serial uint32) (packets []byte, ok bool)
	// deaf is the procedure after whose call the daemon stops reading, or 0.
	deaf uint32

	lock  sync.Mutex
	conns []net.Conn
}

func packet(procedure, kind, serial, status uint32, payload ...[]byte) []byte {
	body := bytes.Join(payload, nil)
	var out []byte
	for _, word := range []uint32{uint32(headerSize + len(body)), remoteProgram, 1, procedure, kind, serial, status} {
		out = binary.BigEndian.AppendUint32(out, word)
	}
	return append(out, body...)
}

func word(values ...uint32) []byte {
	var out []byte
	for _, value := range values {
		out = binary.BigEndian.AppendUint32(out, value)
	}
	return out
}

func text(value string) []byte {
	out := append(word(uint32(len(value))), value...)
	return append(out, make([]byte, (4-len(value)%4)%4)...)
}

// usual returns the payload of a valid answer.
func usual(procedure uint32) []byte {
	switch procedure {
	case procAuth:
		return word(1, 0)
	case procVersion:
		return word(0, 9000000)
	case procNetwork, procPoolLookup:
		return slices.Concat(text("default"), make([]byte, 16))
	case procNetworkXML:
		return text("<network><bridge name='virbr0'/></network>")
	case procVolumeLookup:
		return slices.Concat(text("default"), text("v"), text("/v"))
	case procVolumeXML:
		return text("<volume><capacity>1000000</capacity><target><format type='raw'/></target></volume>")
	case procDomains:
		return word(0, 0)
	case procSubscribe:
		return word(7)
	}
	return nil
}

func (h *hostile) dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	h.lock.Lock()
	h.conns = append(h.conns, theirs)
	h.lock.Unlock()
	go h.serve(theirs)
	return ours, nil
}

func (h *hostile) serve(conn net.Conn) {
	for {
		head := make([]byte, headerSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		field := func(i int) uint32 { return binary.BigEndian.Uint32(head[4*i:]) }
		if _, err := io.CopyN(io.Discard, conn, int64(field(0))-headerSize); err != nil {
			return
		}
		procedure, serial := field(3), field(5)
		if h.answer != nil {
			if packets, ok := h.answer(procedure, serial); ok {
				if _, err := conn.Write(packets); err != nil {
					return
				}
				continue
			}
		}
		if field(4) == 0 {
			if _, err := conn.Write(packet(procedure, typeReply, serial, 0, usual(procedure))); err != nil {
				return
			}
		}
		if procedure == h.deaf {
			return
		}
	}
}

func (h *hostile) connected(t *testing.T, limit time.Duration) *host {
	t.Helper()
	connection, err := connect(t.Context(), h.dial, "test:///default", limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = connection.Close()
		h.lock.Lock()
		defer h.lock.Unlock()
		for _, conn := range h.conns {
			_ = conn.Close()
		}
	})
	return connection
}

func TestNonsense(t *testing.T) {
	reply := func(procedure, serial uint32, payload ...[]byte) []byte {
		return packet(procedure, typeReply, serial, 0, payload...)
	}
	tests := map[string]func(procedure, serial uint32) []byte{
		"huge packet":     func(uint32, uint32) []byte { return word(0xfffffff0) },
		"large packet":    func(uint32, uint32) []byte { return word(maxPacket + 1) },
		"negative packet": func(uint32, uint32) []byte { return word(4) },
		"empty packet":    func(uint32, uint32) []byte { return word(0) },
		"huge list": func(procedure, serial uint32) []byte {
			return reply(procedure, serial, word(0x7fffffff, 0))
		},
		"other program": func(procedure, serial uint32) []byte {
			out := reply(procedure, serial, word(0, 0))
			copy(out[4:], word(0x20008087))
			return out
		},
		"answer to no call": func(procedure, serial uint32) []byte { return reply(procedure, serial+1000, word(0, 0)) },
		"answer of another": func(_, serial uint32) []byte { return reply(procVersion, serial, word(0, 1)) },
		"event without a subscription": func(_, serial uint32) []byte {
			return packet(332, typeMessage, serial, 0, word(1, 0x7fffffff))
		},
		"event as an answer": func(_, serial uint32) []byte { return reply(332, serial, word(1, 0x7fffffff)) },
		"stream from nowhere": func(procedure, serial uint32) []byte {
			return packet(procedure, typeStream, serial, 2, word(0))
		},
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
				return answer(procedure, serial), procedure == procDomains
			}}
			connection := server.connected(t, time.Minute)
			_, err := connection.ListDomains(t.Context())
			g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
			g.Expect(err).To(MatchError(ContainSubstring(errNonsense.Error())))
			g.Eventually(connection.lost).WithTimeout(time.Minute).Should(BeClosed())
			_, err = connection.Network(t.Context(), "default")
			g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
		})
	}
}

func TestAnswerTwice(t *testing.T) {
	g := NewWithT(t)
	server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
		one := packet(procedure, typeReply, serial, 0, usual(procedure))
		return slices.Concat(one, one), procedure == procDomains
	}}
	connection := server.connected(t, time.Minute)
	_, err := connection.ListDomains(t.Context())
	if err != nil { // both may arrive at once
		g.Expect(err).To(MatchError(hypervisor.ErrUnreachable))
	}
	g.Eventually(connection.lost).WithTimeout(time.Minute).Should(BeClosed())
}

// TestBrokenAnswer checks that an answer that the library can't decode is an error of the call.
func TestBrokenAnswer(t *testing.T) {
	for name, payload := range map[string][]byte{
		"too short":   word(0),
		"long string": word(0x7ffffff0, 0),
		"no XML":      text("<volume"),
	} {
		t.Run(name, func(t *testing.T) {
			server := &hostile{answer: func(procedure, serial uint32) ([]byte, bool) {
				return packet(procedure, typeReply, serial, 0, payload), procedure == procVolumeXML
			}}
			_, err := server.connected(t, time.Minute).Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"})
			NewWithT(t).Expect(err).To(MatchError(hypervisor.ErrUnreachable))
		})
	}
}

func TestSilence(t *testing.T) {
	silentFor := func(silent uint32) *hostile {
		return &hostile{answer: func(procedure, _ uint32) ([]byte, bool) { return nil, procedure == silent }}
	}
	t.Run("when connecting", func(t *testing.T) {
		_, err := connect(t.Context(), silentFor(procOpen).dial, "test:///default", 50*time.Millisecond)
		NewWithT(t).Expect(err).To(MatchError(context.DeadlineExceeded))
	})
	t.Run("past the limit of a call", func(t *testing.T) {
		g := NewWithT(t)
		connection := silentFor(procDomains).connected(t, 50*time.Millisecond)
		others := make(chan error, 1)
		go func() {
			_, err := connection.ListDomains(t.Context())
			others <- err
		}()
		_, err := connection.ListDomains(t.Context())
		g.Expect(err).To(Or(MatchError(hypervisor.ErrTimeout), MatchError(hypervisor.ErrUnreachable)))
		g.Expect(<-others).To(Or(MatchError(hypervisor.ErrTimeout), MatchError(hypervisor.ErrUnreachable)))
		g.Expect(connection.lost).To(BeClosed())
	})
	t.Run("the caller gives up first", func(t *testing.T) {
		g := NewWithT(t)
		connection := silentFor(procDomains).connected(t, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := connection.ListDomains(ctx)
			result <- err
		}()
		cancel()
		g.Expect(<-result).To(MatchError(hypervisor.ErrTimeout))
		_, err := connection.Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"})
		g.Expect(err).ToNot(HaveOccurred(), "the connection still works")
	})
	t.Run("in an upload", func(t *testing.T) {
		g := NewWithT(t)
		server := &hostile{deaf: procedureUpload}
		connection := server.connected(t, 100*time.Millisecond)
		err := connection.UploadVolume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"}, bytes.NewReader(make([]byte, 1000000)), 1000000)
		g.Expect(err).To(MatchError(hypervisor.ErrTimeout))
		g.Expect(hypervisor.Uncertain(err)).To(BeTrue())
		_, err = connection.Volume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"})
		g.Expect(err).ToNot(HaveOccurred(), "the shared connection still works")
	})
	t.Run("after an upload", func(t *testing.T) {
		g := NewWithT(t)
		connection := (&hostile{}).connected(t, 100*time.Millisecond) // accepts everything and never confirms it
		err := connection.UploadVolume(t.Context(), hypervisor.VolumeRef{Pool: "default", Name: "v"}, bytes.NewReader(make([]byte, 1000)), 1000)
		g.Expect(err).To(MatchError(hypervisor.ErrTimeout))
	})
}

// TestSlowContent checks that slow content isn't reported as a failure of the host.
func TestSlowContent(t *testing.T) {
	g := NewWithT(t)
	connection := (&hostile{}).connected(t, 100*time.Millisecond)
	content, feed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- connection.UploadVolume(ctx, hypervisor.VolumeRef{Pool: "default", Name: "v"}, content, 1000)
	}()
	_, err := feed.Write(make([]byte, 10))
	g.Expect(err).ToNot(HaveOccurred())
	g.Consistently(result, "300ms").ShouldNot(Receive())
	cancel()
	g.Expect(<-result).To(MatchError(hypervisor.ErrTimeout))
	g.Expect(content.Close()).To(Succeed())
}

// FuzzGuard checks that only whole packets with a valid length are passed on, in whatever parts they arrive.
func FuzzGuard(f *testing.F) {
	f.Add(packet(procVersion, typeReply, 1, 0, word(0, 1)), uint8(3))
	f.Add(packet(lifecycleEvent, typeMessage, 0, 0, word(0, 1)), uint8(40))
	f.Add(word(0xffffffff, 1), uint8(1))
	f.Fuzz(func(t *testing.T, content []byte, piece uint8) {
		conn := newGuard(&parts{rest: content, size: int(piece) + 1})
		conn.calls[1] = call{procedure: procVersion}
		passed, _ := io.ReadAll(conn)
		if !bytes.HasPrefix(content, passed) {
			t.Fatal("other bytes were passed on")
		}
		for len(passed) > 0 {
			length := uint32(0)
			if len(passed) >= headerSize {
				length = binary.BigEndian.Uint32(passed)
			}
			if length < headerSize || length > maxPacket || int(length) > len(passed) {
				t.Fatalf("%d bytes of a packet of %d bytes were passed on", len(passed), length)
			}
			passed = passed[length:]
		}
	})
}

// parts is a connection on which bytes arrive in parts of a size.
type parts struct {
	net.Conn
	rest []byte
	size int
}

func (p *parts) Read(out []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(out, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func (p *parts) Close() error { return nil }
