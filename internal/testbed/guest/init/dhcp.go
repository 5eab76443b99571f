package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The used messages and options of DHCP (RFC 2131, RFC 2132).
const (
	dhcpDiscover, dhcpOffer, dhcpRequest, dhcpAck = 1, 2, 3, 5

	optionMask, optionRouter, optionAddress, optionMessage, optionServer, optionEnd = 1, 3, 50, 53, 54, 255

	dhcpHeader = 236
)

var dhcpCookie = []byte{99, 130, 83, 99}

// lease is the result of DHCP.
type lease struct {
	mac              net.HardwareAddr
	address, gateway net.IP
	mask             net.IPMask
	server           net.IP
}

// renewal is the interval of renewals, independent of the server's answer: less than half of dnsmasq's shortest lease.
const renewal = 45 * time.Second

// configure brings a device up and gives it an address by DHCP, which is renewed as long as the guest runs. It retries
// until there is an answer.
func configure(device *net.Interface) (lease, error) {
	if err := setUp(device.Name); err != nil {
		return lease{}, err
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = errors.Join(
				unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device.Name),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		})
		return errors.Join(err, failed)
	}}
	socket, err := config.ListenPacket(context.Background(), "udp4", "0.0.0.0:68")
	if err != nil {
		return lease{}, fmt.Errorf("listening for DHCP: %w", err)
	}
	for {
		offer, err := exchange(socket, device.HardwareAddr, dhcpDiscover, dhcpOffer, lease{})
		if err == nil {
			offer, err = exchange(socket, device.HardwareAddr, dhcpRequest, dhcpAck, offer)
		}
		if err == nil {
			go renew(socket, offer)
			return offer, setAddress(device.Name, offer)
		}
		fmt.Println("testbed guest: DHCP:", err)
	}
}

// renew renews a lease.
func renew(socket net.PacketConn, given lease) {
	for {
		time.Sleep(renewal)
		if _, err := exchange(socket, given.mac, dhcpRequest, dhcpAck, given); err != nil {
			fmt.Println("testbed guest: renewing the lease:", err)
		}
	}
}

// exchange sends a message and waits a second for the answer.
func exchange(socket net.PacketConn, mac net.HardwareAddr, kind, expected byte, offer lease) (lease, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return lease{}, err
	}
	message := make([]byte, dhcpHeader, dhcpHeader+64)
	message[0], message[1], message[2] = 1, 1, 6 // a request, on an Ethernet, whose addresses have 6 bytes
	copy(message[4:], id[:])
	message[10] = 0x80 // answers by broadcast, as there is no address yet
	copy(message[28:], mac)
	message = append(message, dhcpCookie...)
	message = append(message, optionMessage, 1, kind)
	if kind == dhcpRequest {
		message = append(append(message, optionAddress, 4), offer.address.To4()...)
		message = append(append(message, optionServer, 4), offer.server.To4()...)
	}
	message = append(message, optionEnd)
	if _, err := socket.WriteTo(message, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
		time.Sleep(retry)
		return lease{}, err
	}
	if err := socket.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return lease{}, err
	}
	buffer := make([]byte, 1500)
	for {
		size, _, err := socket.ReadFrom(buffer)
		if err != nil {
			return lease{}, err
		}
		answer := buffer[:size]
		if got, ok := parse(answer, id, expected); ok {
			got.mac = mac
			return got, nil
		}
	}
}

// parse parses an answer of the expected kind. It reports false for all other packets.
func parse(answer []byte, id [4]byte, expected byte) (lease, bool) {
	if len(answer) < dhcpHeader+len(dhcpCookie) || [4]byte(answer[4:8]) != id || !bytes.Equal(answer[dhcpHeader:dhcpHeader+len(dhcpCookie)], dhcpCookie) {
		return lease{}, false
	}
	result := lease{address: net.IP(append([]byte(nil), answer[16:20]...))}
	options := answer[dhcpHeader+len(dhcpCookie):]
	isExpected := false
	for len(options) >= 2 && options[0] != optionEnd {
		if options[0] == 0 {
			options = options[1:]
			continue
		}
		size := int(options[1])
		if len(options) < 2+size {
			break
		}
		value := append([]byte(nil), options[2:2+size]...)
		switch {
		case options[0] == optionMessage && size == 1:
			isExpected = value[0] == expected
		case options[0] == optionMask && size == 4:
			result.mask = value
		case options[0] == optionRouter && size >= 4:
			result.gateway = value[:4]
		case options[0] == optionServer && size == 4:
			result.server = value
		}
		options = options[2+size:]
	}
	return result, isExpected && result.mask != nil && result.gateway != nil && result.server != nil
}
