// Command endpoint runs keepalived, which keeps the address of a cluster's API server on one of the control plane
// machines. It replaces kube-vip in test clusters: it reads the same environment variables, address and port, and its
// pod has the same privileges.
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

// check is the argument with which keepalived runs this program to check the API server of this machine.
const check = "check"

func main() {
	run := runKeepalived
	if len(os.Args) > 1 && os.Args[1] == check {
		run = checkAPIServer
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "endpoint:", err)
		os.Exit(1)
	}
}

// runKeepalived replaces this process with keepalived.
func runKeepalived() error {
	address, err := netip.ParseAddr(os.Getenv("address"))
	if err != nil {
		return fmt.Errorf("the environment variable address must be the IP address of the API server: %w", err)
	}
	device, err := interfaceTo(address)
	if err != nil {
		return fmt.Errorf("looking for the interface to %s: %w", address, err)
	}
	const file = "/tmp/keepalived.conf"
	if err := os.WriteFile(file, []byte(configuration(address, device)), 0o600); err != nil {
		return err
	}
	args := []string{"keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", file, "--pid", "/tmp/keepalived.pid", "--vrrp_pid", "/tmp/vrrp.pid"}
	return fmt.Errorf("starting keepalived: %w", syscall.Exec("/usr/sbin/keepalived", args, os.Environ()))
}

// configuration returns the configuration of keepalived. A machine with a healthy API server has priority. Until one is
// healthy, any machine takes the address, because kubeadm needs it before the API server runs.
func configuration(address netip.Addr, device string) string {
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
`, check, device, max(1, bytes[len(bytes)-1]), address, address.BitLen())
}

// interfaceTo returns the name of the network interface that sends packets to an address.
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
	for _, device := range interfaces {
		addresses, err := device.Addrs()
		if err != nil {
			return "", err
		}
		for _, candidate := range addresses {
			if strings.HasPrefix(candidate.String(), own+"/") {
				return device.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %s", own)
}

// checkAPIServer returns an error unless the API server of this machine is healthy. The request needs no credentials.
func checkAPIServer() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+os.Getenv("port")+"/livez", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the request contains no secret
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
