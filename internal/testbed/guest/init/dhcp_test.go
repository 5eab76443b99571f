package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

var testID = [4]byte{1, 2, 3, 4}

// answer returns a server's message with options after the cookie.
func answer(options ...byte) []byte {
	message := make([]byte, dhcpHeader)
	copy(message[4:], testID[:])
	copy(message[16:], []byte{10, 90, 0, 7})
	return append(append(message, dhcpCookie...), options...)
}

// full returns the options of an acknowledgement.
func full(kind byte, more ...byte) []byte {
	options := []byte{
		optionMessage, 1, kind, optionServer, 4, 10, 90, 0, 1, optionMask, 4, 255, 255, 255, 0, optionRouter, 8, 10, 90, 0, 1, 10, 90, 0, 2,
	}
	return append(options, more...)
}

func TestParse(t *testing.T) {
	tests := []struct {
		name   string
		answer []byte
		is     bool
	}{
		{"acknowledgement", answer(full(dhcpAck, optionEnd)...), true},
		{"no end", answer(full(dhcpAck)...), true},
		{"padding", answer(append([]byte{0, 0}, full(dhcpAck, 0, optionEnd)...)...), true},
		{"unknown options", answer(full(dhcpAck, 28, 4, 10, 90, 0, 255, 51, 4, 0, 0, 0, 120, optionEnd)...), true},
		{"an offer", answer(full(dhcpOffer, optionEnd)...), false},
		{"a truncated option", answer(full(dhcpAck)[:5]...), false},
		{"nothing", nil, false},
		{"a header alone", answer()[:dhcpHeader], false},
		{"no options", answer(), false},
		{"options after the end", answer(append([]byte{optionEnd}, full(dhcpAck)...)...), false},
		{"a mask of another size", answer(optionMessage, 1, dhcpAck, optionServer, 4, 10, 90, 0, 1, optionMask, 3, 255, 255, 255, optionRouter, 4, 10, 90, 0, 1), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, is := parse(test.answer, testID, dhcpAck)
			g.Expect(is).To(Equal(test.is))
			if is {
				g.Expect(got.address.String()).To(Equal("10.90.0.7"))
				g.Expect(got.gateway.String()).To(Equal("10.90.0.1"))
				g.Expect(got.server.String()).To(Equal("10.90.0.1"))
				g.Expect(got.mask.String()).To(Equal("ffffff00"))
			}
		})
	}
	t.Run("an answer for another client", func(t *testing.T) {
		_, is := parse(answer(full(dhcpAck)...), [4]byte{9}, dhcpAck)
		NewWithT(t).Expect(is).To(BeFalse())
	})
	t.Run("another protocol", func(t *testing.T) {
		message := answer(full(dhcpAck)...)
		message[dhcpHeader]++
		_, is := parse(message, testID, dhcpAck)
		NewWithT(t).Expect(is).To(BeFalse())
	})
}

// FuzzParse checks that every accepted lease is complete.
func FuzzParse(f *testing.F) {
	f.Add(answer(full(dhcpAck, optionEnd)...))
	f.Add(answer(full(dhcpOffer)...))
	f.Add(answer(full(dhcpAck)[:9]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, message []byte) {
		before := append([]byte(nil), message...)
		got, is := parse(message, testID, dhcpAck)
		g := NewWithT(t)
		g.Expect(message).To(Equal(before))
		if is {
			g.Expect(got.address.To4()).To(HaveLen(4))
			g.Expect(got.gateway.To4()).To(HaveLen(4))
			g.Expect(got.server.To4()).To(HaveLen(4))
			g.Expect(got.mask).To(HaveLen(4))
		}
	})
}
