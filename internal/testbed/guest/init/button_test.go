package main

import (
	"bytes"
	"encoding/binary"
	"testing"

	. "github.com/onsi/gomega"
)

func event(kind, key uint16, value uint32) []byte {
	out := binary.NativeEndian.AppendUint16(make([]byte, 16), kind)
	return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint16(out, key), value)
}

// TestPowerButton checks that only pressing the power button counts, and not releasing it.
func TestPowerButton(t *testing.T) {
	enter, synchronized, released := event(1, 28, 1), event(0, 0, 0), event(1, 116, 0)
	tests := []struct {
		name   string
		events [][]byte
		want   bool
	}{
		{"nothing", nil, false},
		{"another key", [][]byte{enter, synchronized}, false},
		{"let go", [][]byte{released, synchronized}, false},
		{"the number in an event of another kind", [][]byte{event(3, 116, 1)}, false},
		{"pressed", [][]byte{enter, synchronized, event(1, 116, 1), synchronized}, true},
		{"half an event", [][]byte{event(1, 116, 1)[:20]}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(isPowerPressed(bytes.NewReader(bytes.Join(test.events, nil)))).To(Equal(test.want))
		})
	}
}
