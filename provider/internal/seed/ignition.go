package seed

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Ignition adds files that configure interfaces to an Ignition configuration of version 2 or 3
// (https://coreos.github.io/ignition/specs/). The files are for systemd-networkd (Flatcar) and for NetworkManager
// (Fedora CoreOS): an image has one of the two and ignores the other's files. The rest of the configuration doesn't
// change. Without interfaces Ignition returns config itself. Errors don't quote config.
func Ignition(config []byte, interfaces []Interface) ([]byte, error) {
	if len(interfaces) == 0 {
		return config, nil
	}
	var top, storage map[string]json.RawMessage
	var head struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
		Storage struct {
			Files []json.RawMessage `json:"files"`
		} `json:"storage"`
	}
	if json.Unmarshal(config, &head) != nil || json.Unmarshal(config, &top) != nil || top["storage"] != nil && json.Unmarshal(top["storage"], &storage) != nil {
		return nil, errors.New("adding the interfaces to the Ignition configuration: it isn't one in JSON")
	}
	major, _, _ := strings.Cut(head.Ignition.Version, ".")
	if major != "2" && major != "3" {
		return nil, fmt.Errorf("adding the interfaces to the Ignition configuration: its version is %q, and only 2 and 3 are known", head.Ignition.Version)
	}
	files := head.Storage.Files
	configured, err := ethernets(interfaces)
	if err != nil {
		return nil, err
	}
	for i, one := range configured {
		for _, file := range []ignitionFile{
			{Path: fmt.Sprintf("/etc/systemd/network/10-caplv-%d.network", i), Mode: 0o644, Contents: contents(one.networkd())},
			{Path: fmt.Sprintf("/etc/NetworkManager/system-connections/caplv-%d.nmconnection", i), Mode: 0o600, Contents: contents(one.keyfile(i))},
		} {
			if major == "2" {
				file.Filesystem = "root"
			}
			text, err := json.Marshal(file)
			if err != nil {
				return nil, fmt.Errorf("writing %s: %w", file.Path, err)
			}
			files = append(files, text)
		}
	}
	if storage == nil {
		storage = map[string]json.RawMessage{}
	}
	if storage["files"], err = json.Marshal(files); err == nil {
		if top["storage"], err = json.Marshal(storage); err == nil {
			return json.Marshal(top)
		}
	}
	return nil, fmt.Errorf("writing the Ignition configuration: %w", err)
}

type ignitionFile struct {
	Filesystem string            `json:"filesystem,omitempty"`
	Path       string            `json:"path"`
	Mode       int               `json:"mode"`
	Contents   map[string]string `json:"contents"`
}

func contents(text string) map[string]string {
	return map[string]string{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))}
}

// networkd writes an interface as a .network file of systemd-networkd.
func (e ethernet) networkd() string {
	var out strings.Builder
	fmt.Fprintf(&out, "[Match]\nMACAddress=%s\nType=ether\n\n[Network]\n", e.Match.MACAddress)
	if e.DHCP4 {
		out.WriteString("DHCP=ipv4\n")
	}
	for _, address := range e.Addresses {
		fmt.Fprintf(&out, "Address=%s\n", address)
	}
	if e.Nameservers != nil {
		for _, server := range e.Nameservers.Addresses {
			fmt.Fprintf(&out, "DNS=%s\n", server)
		}
	}
	for _, route := range e.Routes {
		fmt.Fprintf(&out, "\n[Route]\nDestination=%s\nGateway=%s\n", route.To, route.Via)
		if route.Metric > 0 {
			fmt.Fprintf(&out, "Metric=%d\n", route.Metric)
		}
		if route.OnLink {
			out.WriteString("GatewayOnLink=yes\n")
		}
	}
	return out.String()
}

// keyfile writes an interface as a connection of NetworkManager.
func (e ethernet) keyfile(index int) string {
	var out strings.Builder
	fmt.Fprintf(&out, "[connection]\nid=caplv-%d\ntype=ethernet\n\n[ethernet]\nmac-address=%s\n", index, e.Match.MACAddress)
	for _, v4 := range []bool{true, false} {
		family, method, static := "ipv6", "auto", 0
		var lines strings.Builder
		for _, address := range e.Addresses {
			if prefix, err := netip.ParsePrefix(address); err == nil && prefix.Addr().Is4() == v4 {
				static++
				fmt.Fprintf(&lines, "address%d=%s\n", static, address)
			}
		}
		for _, route := range e.Routes { // one for each family
			if via, err := netip.ParseAddr(route.Via); err == nil && via.Is4() == v4 {
				fmt.Fprintf(&lines, "gateway=%s\n", route.Via)
				if route.Metric > 0 {
					fmt.Fprintf(&lines, "route-metric=%d\n", route.Metric)
				}
			}
		}
		if e.Nameservers != nil {
			var servers []string
			for _, server := range e.Nameservers.Addresses {
				if address, err := netip.ParseAddr(server); err == nil && address.Is4() == v4 {
					servers = append(servers, server+";")
				}
			}
			if len(servers) > 0 {
				fmt.Fprintf(&lines, "dns=%s\n", strings.Join(servers, ""))
			}
		}
		if v4 {
			family = "ipv4"
		}
		switch {
		case static > 0 && (!v4 || !e.DHCP4):
			method = "manual"
		case v4 && !e.DHCP4:
			method = "disabled"
		}
		fmt.Fprintf(&out, "\n[%s]\nmethod=%s\n%s", family, method, lines.String())
	}
	return out.String()
}
