package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
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

	typeReply   = 1
	typeMessage = 2
	typeStream  = 3
)

// listProcedures has the procedures whose reply begins with a number of elements, with the minimum size of an
// element, and the shape of the reply (libvirt's remote_protocol.x). The library allocates memory for that number.
var listProcedures = map[uint32]struct {
	least uint32
	shape shape
}{
	66:  {4, "[4]"},          // the ways to authenticate
	273: {24, "[nu4]"},       // domains: name, UUID, ID
	281: {20, "[nu]"},        // storage pools: name, UUID
	282: {12, "[nnp]"},       // volumes: pool, name, key
	285: {4, "[n]"},          // node devices: name
	353: {12, "[n[n][4n4]]"}, // interfaces: name, MAC address if any, addresses with their types and prefixes
}

var errNonsense = errors.New("the host doesn't speak libvirt's protocol")

// guard is a connection that checks all packets, and fails permanently if the host sends something that would break
// the library: packets, lists or names with absurd lengths, unexpected events, and unexpected replies, which would
// block it.
type guard struct {
	net.Conn

	sent, received framer

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
	g := &guard{Conn: conn, calls: map[uint32]call{}}
	g.sent.packet = func(h header) error {
		g.lock.Lock()
		defer g.lock.Unlock()
		if h.kind == 0 { // a call
			g.calls[h.serial] = call{procedure: h.procedure}
		}
		return nil
	}
	g.received.packet = g.check
	g.received.shape = func(h header) shape {
		if h.kind != typeReply || h.status != 0 {
			return ""
		}
		return listProcedures[h.procedure].shape
	}
	return g
}

// Read implements net.Conn. The library gets no part of a packet before its header is checked, and no complete list
// before its body is.
func (g *guard) Read(out []byte) (int, error) {
	if err := g.failure(); err != nil {
		return 0, err
	}
	n, err := g.Conn.Read(out)
	if refused := g.received.feed(out[:n]); refused != nil {
		g.lock.Lock()
		g.failed = fmt.Errorf("%w: %w", errNonsense, refused)
		g.lock.Unlock()
		_ = g.Close()
		return 0, g.failure()
	}
	return n, err
}

// failure returns the error of an invalid packet, if any.
func (g *guard) failure() error {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.failed
}

func (g *guard) Write(content []byte) (int, error) {
	if err := g.sent.feed(content); err != nil {
		return 0, err
	}
	return g.Conn.Write(content)
}

// check checks the header of a packet, and the first word after it.
func (g *guard) check(h header) error {
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
	if list, isList := listProcedures[h.procedure]; isList && h.status == 0 && h.first > (h.length-headerSize)/list.least {
		return fmt.Errorf("a packet of %d bytes is said to have %d elements", h.length, h.first)
	}
	return nil
}

// procedureUpload is the only called procedure with a stream.
const procedureUpload = 208

type header struct {
	length, program, procedure, kind, serial, status uint32
	// first is the first word after the header, or 0 if the packet ends before.
	first uint32
}

// framer cuts a stream of bytes into packets.
type framer struct {
	// packet is called with each header.
	packet func(header) error
	// shape returns the required shape of a packet's body, or "" for any. It is optional.
	shape func(header) shape

	head []byte
	// left is the number of missing bytes of the packet.
	left int
	// body has the received part of a body that must have the shape wanted.
	body   []byte
	wanted shape
}

func (f *framer) feed(content []byte) error {
	for len(content) > 0 {
		if f.left > 0 {
			n := min(f.left, len(content))
			f.left -= n
			if f.wanted != "" {
				f.body = append(f.body, content[:n]...)
			}
			content = content[n:]
			if err := f.finishBody(); err != nil {
				return err
			}
			continue
		}
		want := 4
		if len(f.head) >= 4 {
			length := binary.BigEndian.Uint32(f.head)
			if length < headerSize || length > maxPacket {
				return fmt.Errorf("a packet is said to have %d bytes", length)
			}
			want = int(min(length, headerSize+4))
		}
		if len(f.head) < want {
			n := min(want-len(f.head), len(content))
			f.head = append(f.head, content[:n]...)
			content = content[n:]
			if len(f.head) < want {
				return nil
			}
			if want == 4 {
				continue
			}
		}
		if err := f.finish(); err != nil {
			return err
		}
	}
	if len(f.head) == 4 {
		// Only the length has arrived: reject an invalid one at once.
		if length := binary.BigEndian.Uint32(f.head); length < headerSize || length > maxPacket {
			return fmt.Errorf("a packet is said to have %d bytes", length)
		}
	}
	return nil
}

func (f *framer) finish() error {
	word := func(i int) uint32 { return binary.BigEndian.Uint32(f.head[4*i:]) }
	h := header{length: word(0), program: word(1), procedure: word(3), kind: word(4), serial: word(5), status: word(6)}
	if len(f.head) == headerSize+4 {
		h.first = word(7)
	}
	f.left = int(h.length) - len(f.head)
	if f.shape != nil {
		f.wanted = f.shape(h)
		f.body = append(f.body[:0], f.head[headerSize:]...)
	}
	f.head = f.head[:0]
	if err := f.packet(h); err != nil {
		return err
	}
	return f.finishBody()
}

// finishBody checks the shape of a complete body.
func (f *framer) finishBody() error {
	if f.wanted == "" || f.left > 0 {
		return nil
	}
	wanted, body := f.wanted, f.body
	f.wanted, f.body = "", nil
	return wanted.holds(body)
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
