package loadbalancer

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

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

// UserData returns the user-data of every load balancer, for cloud-init: a service that gives HAProxy the
// configurations from the disk. There is no secret in it. HAProxy is in the image.
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
