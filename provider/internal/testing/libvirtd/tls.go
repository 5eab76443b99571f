package libvirtd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
)

// TLS is the configuration of a daemon for TLS.
type TLS struct {
	// CA, Cert and Key are in PEM.
	CA, Cert, Key []byte
	// Allowed are the names of the allowed clients, as in tls_allowed_dn_list.
	Allowed []string
}

// ListenTLS restarts the daemon with TLS on a free port of 127.0.0.1, and returns the URI.
func (d *Daemon) ListenTLS(options TLS) (hosturi.URI, error) {
	// Nothing else takes the port in the short time until the daemon listens.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return hosturi.URI{}, err
	}
	address := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil {
		return hosturi.URI{}, err
	}
	configuration := fmt.Sprintf("listen_tls = 1\nlisten_addr = \"127.0.0.1\"\ntls_port = \"%d\"\ntls_allowed_dn_list = [", address.Port)
	for _, name := range options.Allowed {
		configuration += strconv.Quote(name) + ","
	}
	configuration += "]\n"
	for name, content := range map[string][]byte{"ca_file": options.CA, "cert_file": options.Cert, "key_file": options.Key} {
		file := filepath.Join(d.folder, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return hosturi.URI{}, err
		}
		if err := own(file); err != nil {
			return hosturi.URI{}, err
		}
		configuration += fmt.Sprintf("%s = %q\n", name, file)
	}
	d.Kill()
	file, err := os.OpenFile(filepath.Join(d.folder, "config", "libvirt", "libvirtd.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return hosturi.URI{}, err
	}
	if _, err := file.WriteString(configuration); err != nil {
		return hosturi.URI{}, err
	}
	if err := file.Close(); err != nil {
		return hosturi.URI{}, err
	}
	d.arguments = []string{"--listen"}
	return hosturi.URI{Driver: hosturi.QEMU, Transport: hosturi.TLS, Host: "127.0.0.1", Port: uint16(address.Port), Path: "/session"}, d.Start() //nolint:gosec // a port has 16 bits
}
