// Command endpoint holds the address of a cluster's API server on one of the control plane machines, by keepalived. It
// takes the place of kube-vip's image in a cluster for tests: it reads the same variables, address and port, and its
// pod has the same rights.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// check is the argument with which keepalived checks whether the API server of this machine is healthy.
const check = "check"

func main() {
	do := hold
	if len(os.Args) > 1 && os.Args[1] == check {
		do = askAPIServer
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "endpoint:", err)
		os.Exit(1)
	}
}

// hold replaces the process with keepalived.
func hold() error {
	address, err := netip.ParseAddr(os.Getenv("address"))
	if err != nil {
		return fmt.Errorf("the variable address should be that of the API server: %w", err)
	}
	outside, err := interfaceTo(address)
	if err != nil {
		return fmt.Errorf("looking for the interface to %s: %w", address, err)
	}
	const file = "/tmp/keepalived.conf"
	if err := os.WriteFile(file, []byte(configuration(address, outside)), 0o600); err != nil {
		return err
	}
	args := []string{"keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", file, "--pid", "/tmp/keepalived.pid", "--vrrp_pid", "/tmp/vrrp.pid"}
	return fmt.Errorf("starting keepalived: %w", syscall.Exec("/usr/sbin/keepalived", args, os.Environ()))
}

// configuration of keepalived: of the machines with the address the one with a healthy API server has priority, and
// while there is none any machine takes the address, because kubeadm wants it before the API server is up.
func configuration(address netip.Addr, outside string) string {
	bytes := address.AsSlice()
	return fmt.Sprintf(`global_defs {
  script_user root
}
vrrp_script api_server {
  script "/endpoint %s"
  interval 5
  timeout 20
  fall 3
  rise 1
  weight 50
}
vrrp_instance endpoint {
  state BACKUP
  interface %s
  virtual_router_id %d
  priority 100
  advert_int 2
  virtual_ipaddress {
    %s/%d
  }
  track_script {
    api_server
  }
}
`, check, outside, max(1, bytes[len(bytes)-1]), address, address.BitLen())
}

// interfaceTo returns the name of the interface for packets to an address.
func interfaceTo(address netip.Addr) (string, error) {
	connection, err := net.Dial("udp", net.JoinHostPort(address.String(), "9")) // sends nothing
	if err != nil {
		return "", err
	}
	own, _, err := net.SplitHostPort(connection.LocalAddr().String())
	if err := errors.Join(err, connection.Close()); err != nil {
		return "", err
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, outside := range interfaces {
		addresses, err := outside.Addrs()
		if err != nil {
			return "", err
		}
		for _, candidate := range addresses {
			if strings.HasPrefix(candidate.String(), own+"/") {
				return outside.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %s", own)
}

// askAPIServer checks whether the API server of this machine is healthy, which needs no credentials.
func askAPIServer() error {
	const patience = 15 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+os.Getenv("port")+"/livez", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // nothing secret is sent
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // nothing is read
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server answers %s", answer.Status)
	}
	return nil
}
