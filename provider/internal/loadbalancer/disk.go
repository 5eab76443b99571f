package loadbalancer

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"

	"sigs.k8s.io/yaml"
)

// The disk of a load balancer is its seed, followed by an area with HAProxy's configuration. The host writes the area
// while the guest runs, and the guest reads it without its cache. A read may mix two writes, so the area begins with a
// line with the length and the hash of the rest, and the guest accepts only a match. Writing the same configuration
// again changes nothing.
const (
	// AreaOffset is the position of the area in bytes, and AreaSize its size.
	AreaOffset = 1 << 20
	AreaSize   = 64 << 10

	// areaMark is the beginning of the area, for the guest.
	areaMark = "haproxy.cfg"
)

// Disk returns the content of a load balancer's disk: its seed, and the area with a configuration of HAProxy. The size
// is always the same. It is an error if one of them is too long.
func Disk(seed []byte, file string) ([]byte, error) {
	if len(seed) > AreaOffset {
		return nil, fmt.Errorf("the seed of a load balancer has %d bytes, and there is room for %d", len(seed), AreaOffset)
	}
	sum := sha256.Sum256([]byte(file))
	area := fmt.Sprintf("%s %d %s\n%s", areaMark, len(file), hex.EncodeToString(sum[:]), file)
	if len(area) > AreaSize {
		return nil, fmt.Errorf("the configuration of HAProxy has %d bytes, and there is room for %d", len(area), AreaSize)
	}
	disk := make([]byte, AreaOffset+AreaSize)
	copy(disk, seed)
	copy(disk[AreaOffset:], area)
	return disk, nil
}

var (
	//go:embed haproxy-configuration.sh
	script string
	//go:embed haproxy-configuration.service
	unit string
)

type (
	cloudConfig struct {
		WriteFiles []cloudFile `json:"write_files"`
		RunCmd     [][]string  `json:"runcmd"`
	}
	cloudFile struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	}
)

// UserData returns the cloud-init user-data of all load balancers: a service that passes the configurations on the disk
// to HAProxy, which is part of the image. It has no secrets.
func UserData() ([]byte, error) {
	text, err := yaml.Marshal(cloudConfig{
		WriteFiles: []cloudFile{
			{Path: "/usr/local/sbin/haproxy-configuration", Permissions: "0755", Content: script},
			{Path: "/etc/systemd/system/haproxy-configuration.service", Permissions: "0644", Content: unit},
		},
		RunCmd: [][]string{
			{"systemctl", "daemon-reload"},
			{"systemctl", "enable", "haproxy.service"},
			{"systemctl", "enable", "--now", "haproxy-configuration.service"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the user-data of a load balancer: %w", err)
	}
	return append([]byte("#cloud-config\n"), text...), nil
}
