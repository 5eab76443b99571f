package libvirt

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// libvirt's wire format (https://libvirt.org/kbase/internals/rpc.html): each packet begins with its length, program,
// version, procedure, type, serial and status, four bytes each.
const (
	headerSize = 28
	// maxPacket is the maximum length of libvirt's packets (VIR_NET_MESSAGE_MAX).
	maxPacket = 32<<20 + 4

	remoteProgram  = 0x20008086
	lifecycleEvent = 318

	typeCall    = 0
	typeReply   = 1
	typeMessage = 2
	typeStream  = 3
)

// listProcedures has the procedures whose reply begins with a list, with the shape of the reply (libvirt's
// remote_protocol.x). The library allocates memory for the number of elements.
var listProcedures = map[uint32]shape{
	66:  "[4]",         // the ways to authenticate
	273: "[nu4]",       // domains: name, UUID, ID
	281: "[nu]",        // storage pools: name, UUID
	282: "[nnp]",       // volumes: pool, name, key
	285: "[n]",         // node devices: name
	353: "[n[n][4n4]]", // interfaces: name, MAC address if any, addresses with their types and prefixes
}

var errNonsense = errors.New("the host doesn't speak libvirt's protocol")

// guard is a connection that checks all packets, and fails permanently if the host sends something that would break
// the library: packets, lists or names with absurd lengths, unexpected events, and unexpected replies, which would
// block it.
type guard struct {
	net.Conn

	// received buffers Conn, and packet has the unread part of the last packet.
	received *bufio.Reader
	packet   []byte
	// unsent is the number of missing bytes of the packet that the library writes.
	unsent int

	lock sync.Mutex
	// failed is the error of an invalid packet.
	failed error
	// calls has the pending calls by serial number. Packets of a stream may follow an answered call.
	calls map[uint32]call
}

type call struct {
	procedure uint32
	answered  bool
}

func newGuard(conn net.Conn) *guard {
	return &guard{Conn: conn, received: bufio.NewReader(conn), calls: map[uint32]call{}}
}

// Read implements net.Conn. The library gets no part of a packet before all of it is checked.
func (g *guard) Read(out []byte) (int, error) {
	if len(g.packet) == 0 {
		if err := g.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(out, g.packet)
	g.packet = g.packet[n:]
	return n, nil
}

// receive reads and checks a packet.
func (g *guard) receive() error {
	if err := g.failure(); err != nil {
		return err
	}
	length, err := g.received.Peek(4)
	if err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length)
	if size < headerSize || size > maxPacket {
		return g.refuse(fmt.Errorf("a packet is said to have %d bytes", size))
	}
	// The buffer grows with the bytes that arrive.
	var packet bytes.Buffer
	if _, err := io.CopyN(&packet, g.received, int64(size)); err != nil {
		return err
	}
	if err := g.check(packet.Bytes()); err != nil {
		return g.refuse(err)
	}
	g.packet = packet.Bytes()
	return nil
}

// refuse closes the connection because of an invalid packet.
func (g *guard) refuse(why error) error {
	g.lock.Lock()
	g.failed = fmt.Errorf("%w: %w", errNonsense, why)
	g.lock.Unlock()
	_ = g.Close()
	return g.failure()
}

// failure returns the error of an invalid packet, if any.
func (g *guard) failure() error {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.failed
}

// Write implements net.Conn. It records the calls. The library buffers its packets and flushes after each, so that the
// header of a packet is at the beginning of a write.
func (g *guard) Write(content []byte) (int, error) {
	if g.unsent == 0 {
		if len(content) < headerSize {
			return 0, errors.New("a packet is written without its whole header")
		}
		h := readHeader(content)
		g.unsent = int(h.length)
		if h.kind == typeCall {
			g.lock.Lock()
			g.calls[h.serial] = call{procedure: h.procedure}
			g.lock.Unlock()
		}
	}
	g.unsent -= len(content)
	return g.Conn.Write(content)
}

// check checks a packet.
func (g *guard) check(packet []byte) error {
	h := readHeader(packet)
	if h.program != remoteProgram {
		return fmt.Errorf("a packet is of program %#x", h.program)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	known, waiting := g.calls[h.serial]
	switch {
	case h.kind == typeMessage && h.procedure == lifecycleEvent:
		return nil
	case h.kind == typeReply && waiting && !known.answered && h.procedure == known.procedure:
	case h.kind == typeStream && waiting && known.answered && h.procedure == known.procedure:
		return nil
	default:
		return fmt.Errorf("a packet of type %d and procedure %d, serial number %d, isn't the answer to a call", h.kind, h.procedure, h.serial)
	}
	if known.procedure == procedureUpload && h.status == 0 {
		known.answered = true
		g.calls[h.serial] = known
	} else {
		delete(g.calls, h.serial)
	}
	if h.status != 0 {
		return nil
	}
	return listProcedures[h.procedure].holds(packet[headerSize:])
}

// procedureUpload is the only called procedure with a stream.
const procedureUpload = 208

type header struct {
	length, program, procedure, kind, serial, status uint32
}

func readHeader(packet []byte) header {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(packet[4*i:]) }
	return header{length: word(0), program: word(1), procedure: word(3), kind: word(4), serial: word(5), status: word(6)}
}

// shape describes the elements of a reply: 4 is a four-byte number, u a UUID, n a name and p a path, each with its
// length, and [...] is a list with its number of elements.
type shape string

const (
	// maxName is the maximum length of a name in bytes. libvirt's drivers use names for files, which have at most 255
	// bytes.
	maxName = 1024
	// maxPath is the maximum length of a path or a volume's key in bytes, which is Linux' PATH_MAX.
	maxPath = 4096
)

var errCutOff = errors.New("a packet ends in the middle of a list")

// holds returns an error if a reply doesn't have the shape: the library allocates lists and texts with the sizes in
// the reply. It ignores what follows after the shape.
func (s shape) holds(reply []byte) error {
	_, err := s.walk(reply)
	return err
}

// walk returns the bytes after the shape.
func (s shape) walk(reply []byte) ([]byte, error) {
	for i := 0; i < len(s); i++ {
		size, length := 4, uint32(0)
		if s[i] == 'u' {
			size = 16
		}
		if len(reply) < size {
			return nil, errCutOff
		}
		if s[i] != 'u' {
			length = binary.BigEndian.Uint32(reply)
		}
		reply = reply[size:]
		var err error
		switch s[i] {
		case 'n':
			reply, err = skipText(reply, length, maxName)
		case 'p':
			reply, err = skipText(reply, length, maxPath)
		case '[':
			end := i + s[i:].closing()
			reply, err = s[i+1:end].walkAll(reply, length)
			i = end
		}
		if err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// walkAll returns the bytes after count elements of the shape, which have at least four bytes each.
func (s shape) walkAll(reply []byte, count uint32) ([]byte, error) {
	if uint64(count)*4 > uint64(len(reply)) {
		return nil, fmt.Errorf("%d bytes of a packet are said to have %d elements", len(reply), count)
	}
	var err error
	for range count {
		if reply, err = s.walk(reply); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// closing returns the end of the list at the beginning of the shape.
func (s shape) closing() int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '[':
			open++
		case ']':
			if open--; open == 0 {
				return i
			}
		}
	}
	panic("a list in the shape " + string(s) + " has no end")
}

// skipText returns the bytes after a text, which is padded to a multiple of four bytes.
func skipText(reply []byte, length, most uint32) ([]byte, error) {
	if length > most {
		return nil, fmt.Errorf("a name or a path in a list is said to have %d bytes", length)
	}
	padded := int((length + 3) / 4 * 4)
	if len(reply) < padded {
		return nil, errCutOff
	}
	return reply[padded:], nil
}
