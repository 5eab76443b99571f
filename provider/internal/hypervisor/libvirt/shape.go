package libvirt

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// shape is what a reply consists of, in the library's eyes, as a text of these letters: 4 and u are a number of
// four bytes and a UUID, n and p are a name and a path, each with its length before it, and [...] is a list of
// what is within, with the number of its elements before it.
type shape string

const (
	// maxName is how long a name may be, in bytes. libvirt's drivers make names of files of them, which have 255.
	maxName = 1024
	// maxPath is how long a path may be, or what a volume has in place of one, in bytes. It is Linux' PATH_MAX.
	maxPath = 4096
)

var errCutOff = errors.New("a packet ends in the middle of a list")

// holds says what is wrong with a reply that should have the shape: the library makes room for lists and texts
// as large as a host says that they are, also for those within the elements of a list, and what is in a list is
// kept for long. Nothing is, when it is nil. What follows after the shape isn't looked at.
func (s shape) holds(reply []byte) error {
	_, err := s.walk(reply)
	return err
}

// walk returns what follows after the shape.
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

// walkAll returns what follows after so many elements of the shape, each of which takes at least four bytes.
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

// closing is where the list ends that the shape begins with.
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

// skipText returns what follows after a text, which is filled up to a multiple of four bytes.
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
