// Package hosturi parses the URI of a LibvirtHost: the transport to its libvirt daemon, and the daemon's driver.
//
// libvirt's own URIs have parameters that name files on the client's machine, run commands there, or disable
// verification. An API object must not do that, so this package accepts only its documented forms.
package hosturi

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Transport is the way to connect to a libvirt daemon.
type Transport string

// The transports, as in a URI's scheme.
const (
	// TLS is a TCP connection with client certificates: qemu+tls.
	TLS Transport = "tls"
	// SSH is a connection to the daemon's socket through SSH: qemu+ssh.
	SSH Transport = "ssh"
	// Unix is a socket on the machine that the manager runs on: qemu+unix, and test.
	Unix Transport = "unix"
)

// Driver is the driver of the libvirt daemon.
type Driver string

// The drivers.
const (
	// QEMU runs virtual machines.
	QEMU Driver = "qemu"
	// Test only simulates them. It is for tests.
	Test Driver = "test"
)

const (
	tlsPort = 16514
	sshPort = 22
)

// URI is a parsed URI of a host.
type URI struct {
	// Driver is the libvirt driver behind the daemon.
	Driver Driver
	// Transport is how to connect to the daemon.
	Transport Transport
	// Host is a DNS name or an IP address, or empty for Unix.
	Host string
	// Port is the TCP port of the daemon or of the SSH server, or 0 for Unix.
	Port uint16
	// User is the user to log in as, for SSH only.
	User string
	// Path is the connection that the daemon opens: /system for QEMU, /default for Test.
	Path string
	// Socket is the path of the daemon's socket, or empty for the default one and for TLS.
	Socket string
}

// NeedsIdentity reports whether the daemon needs credentials.
func (u URI) NeedsIdentity() bool {
	return u.Transport == TLS || u.Transport == SSH
}

// ConnectURI returns the URI that the daemon opens, for example qemu:///system.
func (u URI) ConnectURI() string {
	return string(u.Driver) + "://" + u.Path
}

// String writes the URI in the form that Parse reads, without the default port.
func (u URI) String() string {
	scheme := string(u.Driver)
	if u.Driver == QEMU {
		scheme += "+" + string(u.Transport)
	}
	out := url.URL{Scheme: scheme, Path: u.Path}
	if out.Host = u.Host; strings.Contains(u.Host, ":") {
		out.Host = "[" + u.Host + "]"
	}
	if u.Port != usualPort(u.Transport) {
		out.Host += ":" + strconv.Itoa(int(u.Port))
	}
	if u.User != "" {
		out.User = url.User(u.User)
	}
	if u.Socket != "" {
		out.RawQuery = url.Values{"socket": {u.Socket}}.Encode()
	}
	return out.String()
}

// Parse parses a host's URI. Errors say what to write instead, and never have a password.
func Parse(raw string) (URI, error) {
	parsed, err := url.Parse(raw)
	if err != nil {
		// The error of url.Parse quotes the whole URI, including a password.
		var urlError *url.Error
		if errors.As(err, &urlError) {
			return URI{}, errors.New("not a URI: write it like qemu+tls://host/system")
		}
		return URI{}, err
	}
	if parsed.Opaque != "" || parsed.Fragment != "" || strings.Contains(raw, "#") {
		return URI{}, errors.New("not a libvirt URI: write it like qemu+tls://host/system")
	}

	var result URI
	switch parsed.Scheme {
	case "qemu+tls":
		result, err = parseRemote(parsed, TLS)
	case "qemu+ssh":
		result, err = parseRemote(parsed, SSH)
	case "qemu+unix":
		result, err = parseLocal(parsed, QEMU)
	case "test":
		result, err = parseLocal(parsed, Test)
	default:
		return URI{}, fmt.Errorf("scheme %q isn't one of qemu+tls, qemu+ssh, qemu+unix and test", parsed.Scheme)
	}
	if err != nil {
		return URI{}, err
	}
	if result.Path, err = parsePath(parsed, result.Driver); err != nil {
		return URI{}, err
	}
	if result.Socket, err = parseSocket(parsed, result.Transport); err != nil {
		return URI{}, err
	}
	return result, nil
}

func parseRemote(parsed *url.URL, transport Transport) (URI, error) {
	host := parsed.Hostname()
	if host == "" {
		return URI{}, fmt.Errorf("no host: write it like qemu+%s://host/system, or use qemu+unix for this machine", transport)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 || IsNumeric(host) {
			return URI{}, fmt.Errorf("host %q is neither an IP address nor a DNS name in lower case", host)
		}
	}

	port, err := parsePort(parsed, transport)
	if err != nil {
		return URI{}, err
	}
	user, err := parseUser(parsed, transport)
	if err != nil {
		return URI{}, err
	}
	return URI{Driver: QEMU, Transport: transport, Host: host, Port: port, User: user}, nil
}

// IsNumeric reports whether the last label of a host is a number, as in 300.1.1.1: it is never a DNS name.
func IsNumeric(host string) bool {
	last := host[strings.LastIndex(host, ".")+1:]
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func parseLocal(parsed *url.URL, driver Driver) (URI, error) {
	if parsed.Host != "" || parsed.User != nil {
		return URI{}, fmt.Errorf("%s is for a daemon on this machine: write three slashes and no host or user, or use qemu+tls or qemu+ssh", parsed.Scheme)
	}
	return URI{Driver: driver, Transport: Unix}, nil
}

func parsePort(parsed *url.URL, transport Transport) (uint16, error) {
	if parsed.Port() == "" {
		if strings.HasSuffix(parsed.Host, ":") {
			return 0, errors.New("no port after the colon: write one, or leave out the colon")
		}
		return usualPort(transport), nil
	}
	port, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("port %q isn't a number from 1 to 65535", parsed.Port())
	}
	return uint16(port), nil
}

func parseUser(parsed *url.URL, transport Transport) (string, error) {
	if _, hasPassword := parsed.User.Password(); hasPassword {
		return "", errors.New("the URI has a password: store credentials in the Secret of a LibvirtClusterIdentity")
	}
	user := parsed.User.Username()
	if transport == TLS {
		if parsed.User != nil {
			return "", errors.New("qemu+tls has no user: the client certificate says who connects")
		}
		return "", nil
	}
	if user == "" {
		return "", errors.New("no user: write it like qemu+ssh://user@host/system")
	}
	if strings.HasPrefix(user, "-") || strings.ContainsFunc(user, func(r rune) bool { return !isUserRune(r) }) {
		return "", fmt.Errorf("user %q has characters other than letters, digits, '.', '_' and '-', or begins with '-'", user)
	}
	return user, nil
}

func isUserRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

func parsePath(parsed *url.URL, driver Driver) (string, error) {
	if driver == Test {
		// Another path would be a file that the daemon reads.
		if parsed.Path != "/default" {
			return "", fmt.Errorf("path %q isn't /default, which is the only one that test has", parsed.Path)
		}
		return parsed.Path, nil
	}
	if parsed.Path != "/system" && parsed.Path != "/session" {
		return "", fmt.Errorf("path %q isn't /system (or /session, for an unprivileged daemon)", parsed.Path)
	}
	return parsed.Path, nil
}

func parseSocket(parsed *url.URL, transport Transport) (string, error) {
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return "", errors.New("the part after '?' can't be read: write it like ?socket=/path, or leave it out")
	}
	for name := range query {
		if name != "socket" {
			return "", fmt.Errorf("parameter %q isn't supported: only socket is", name)
		}
	}
	values, given := query["socket"]
	if !given {
		return "", nil
	}
	if transport == TLS {
		return "", errors.New("qemu+tls has no socket: leave the parameter out")
	}
	if len(values) != 1 || !path.IsAbs(values[0]) || path.Clean(values[0]) != values[0] || strings.ContainsAny(values[0], "\x00\n\r") {
		return "", errors.New("socket isn't one absolute path: write it like ?socket=/run/libvirt/libvirt-sock")
	}
	return values[0], nil
}

func usualPort(transport Transport) uint16 {
	switch transport {
	case TLS:
		return tlsPort
	case SSH:
		return sshPort
	case Unix:
	}
	return 0
}
