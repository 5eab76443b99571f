package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"unsafe"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// networkConfig is the supported part of cloud-init's network configuration, version 2
// (https://docs.cloud-init.io/en/latest/reference/network-config-format-v2.html). Unsupported fields are errors: a
// guest that ignores them would look good.
type networkConfig struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]ethernet `yaml:"ethernets"`
}

type ethernet struct {
	Match struct {
		MACAddress string `yaml:"macaddress"`
	} `yaml:"match"`
	DHCP4     bool     `yaml:"dhcp4"`
	Addresses []string `yaml:"addresses"`
	Routes    []struct {
		To  string `yaml:"to"`
		Via string `yaml:"via"`
	} `yaml:"routes"`
}

// static is the configuration of an interface without DHCP.
type static struct {
	addresses []netip.Prefix
	// gateway is that of IPv4, in the network of one of the addresses.
	gateway netip.Addr
}

// parseNetwork returns the configuration of the interface with a MAC address, or nil for DHCP.
func parseNetwork(content []byte, mac net.HardwareAddr) (*static, error) {
	var config networkConfig
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&config); err != nil {
		return nil, fmt.Errorf("reading the network-config: %w", err)
	}
	if config.Version != 2 {
		return nil, fmt.Errorf("the network-config has version %d, and not 2", config.Version)
	}
	for name, one := range config.Ethernets {
		configured, err := net.ParseMAC(one.Match.MACAddress)
		if err != nil {
			return nil, fmt.Errorf("the network-config of %s: %w", name, err)
		}
		if !bytes.Equal(configured, mac) {
			continue
		}
		if one.DHCP4 && len(one.Addresses)+len(one.Routes) == 0 {
			return nil, nil
		}
		result, err := one.static()
		if err != nil {
			return nil, fmt.Errorf("the network-config of %s: %w", name, err)
		}
		return result, nil
	}
	return nil, fmt.Errorf("the network-config has no interface %s", mac)
}

func (e ethernet) static() (*static, error) {
	if e.DHCP4 {
		return nil, errors.New("it has both DHCP and addresses")
	}
	result := &static{}
	for _, text := range e.Addresses {
		address, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		if second := slices.ContainsFunc(result.addresses, func(p netip.Prefix) bool { return p.Addr().Is4() }); second && address.Addr().Is4() {
			return nil, fmt.Errorf("%s is a second IPv4 address: only one is supported", address)
		}
		result.addresses = append(result.addresses, address)
	}
	for _, route := range e.Routes {
		via, err := netip.ParseAddr(route.Via)
		if err != nil {
			return nil, err
		}
		if route.To != "0.0.0.0/0" || !via.Is4() || result.gateway.IsValid() {
			return nil, fmt.Errorf("the route to %s by %s: only the default route of IPv4 is supported", route.To, route.Via)
		}
		result.gateway = via
	}
	if _, err := result.lease(); err != nil {
		return nil, err
	}
	return result, nil
}

// lease returns the address with the gateway, as a result of DHCP.
func (s *static) lease() (lease, error) {
	for _, address := range s.addresses {
		if address.Addr().Is4() && s.gateway.IsValid() && address.Contains(s.gateway) {
			return lease{
				address: address.Addr().AsSlice(), mask: net.CIDRMask(address.Bits(), 32), gateway: s.gateway.AsSlice(),
			}, nil
		}
	}
	return lease{}, errors.New("a guest needs an IPv4 address with a gateway in its network for its report")
}

// configureStatic brings a device up with its addresses.
func configureStatic(device *net.Interface, want *static) (lease, error) {
	first, err := want.lease()
	if err != nil {
		return lease{}, err
	}
	first.mac = device.HardwareAddr
	if err := setUp(device.Name); err != nil {
		return lease{}, err
	}
	if err := setAddress(device.Name, first); err != nil {
		return lease{}, err
	}
	for _, address := range want.addresses {
		if address.Addr().Is4() {
			continue
		}
		// The struct of linux/ipv6.h.
		request := struct {
			address [16]byte
			bits    uint32
			index   int32
		}{address.Addr().As16(), uint32(address.Bits()), int32(device.Index)}
		if err := ioctl(unix.AF_INET6, unix.SIOCSIFADDR, unsafe.Pointer(&request)); err != nil {
			return lease{}, fmt.Errorf("giving %s the address %s: %w", device.Name, address, err)
		}
	}
	return first, nil
}

// addressesOf returns the addresses of a device in the kernel, with the lengths of their networks, without those that
// the kernel adds itself.
func addressesOf(device *net.Interface) ([]string, error) {
	all, err := device.Addrs()
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && !network.IP.IsLinkLocalUnicast() {
			addresses = append(addresses, network.String())
		}
	}
	return addresses, nil
}

// setUp brings a device up.
func setUp(device string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := ioctl(unix.AF_INET, unix.SIOCSIFFLAGS, unsafe.Pointer(request)); err != nil {
		return fmt.Errorf("bringing %s up: %w", device, err)
	}
	return nil
}

// ioctl calls the kernel for a network device and a family of addresses.
func ioctl(family int, request uint, argument unsafe.Pointer) error {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument)); errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}

// rtentry is the kernel's struct of a route on machines with 64 bits (linux/route.h).
type rtentry struct {
	_                         uint64
	destination, gateway, net unix.RawSockaddrInet4
	flags                     uint16
	_                         [60]byte
}

func setAddress(device string, given lease) error {
	for _, set := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, given.address.To4()}, {unix.SIOCSIFNETMASK, given.mask}} {
		request, err := unix.NewIfreq(device)
		if err != nil {
			return err
		}
		if err := request.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := ioctl(unix.AF_INET, set.request, unsafe.Pointer(request)); err != nil {
			return fmt.Errorf("giving %s the address %s: %w", device, given.address, err)
		}
	}
	route := rtentry{flags: unix.RTF_UP | unix.RTF_GATEWAY}
	route.destination.Family, route.gateway.Family, route.net.Family = unix.AF_INET, unix.AF_INET, unix.AF_INET
	binary.NativeEndian.PutUint32(route.gateway.Addr[:], binary.NativeEndian.Uint32(given.gateway.To4()))
	if err := ioctl(unix.AF_INET, unix.SIOCADDRT, unsafe.Pointer(&route)); err != nil {
		return fmt.Errorf("setting the route by %s: %w", given.gateway, err)
	}
	return nil
}
