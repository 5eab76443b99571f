package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
)

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
