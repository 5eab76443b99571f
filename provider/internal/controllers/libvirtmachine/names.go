package libvirtmachine

import (
	"fmt"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Everything on a host is named from the UUID in spec.providerID, which is written before anything is
// made, and from the machine's namespace and name: a controller that begins anew finds what was made, and
// nothing that is another machine's.

// maxDomainName is how long the part of a domain's name is that is for people. The name becomes that
// of files on the host.
const maxDomainName = 180

// domainName is the name of the domain on its host. The namespace and name are for people, and the
// beginning of the UUID tells domains of several management clusters apart.
func (s *scope) domainName() string {
	name := s.infra.Namespace + "." + s.infra.Name
	return fmt.Sprintf("%s.%s", strings.TrimRight(name[:min(len(name), maxDomainName)], ".-"), s.uuid[:8])
}

func (s *scope) owner() hypervisor.Owner {
	return hypervisor.Owner{Cluster: s.clusterName(), Namespace: s.infra.Namespace, Name: s.infra.Name}
}

// volumePrefix begins the names of all volumes of the machine.
func (s *scope) volumePrefix() string {
	return hypervisor.VolumePrefix(s.uuid, s.infra.Namespace, s.infra.Name)
}

func (s *scope) volume(pool, what string) hypervisor.VolumeRef {
	return hypervisor.VolumeRef{Pool: pool, Name: s.volumePrefix() + what}
}

// pool is the storage pool for a disk that asks for one, or for none.
func (s *scope) pool(wanted string) string {
	if wanted == "" && len(s.host.Spec.StoragePools.Disks) > 0 {
		return s.host.Spec.StoragePools.Disks[0]
	}
	return wanted
}

func (s *scope) rootRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "root")
}

func (s *scope) seedRef() hypervisor.VolumeRef {
	return s.volume(s.pool(s.infra.Spec.RootDisk.Pool), "seed")
}
