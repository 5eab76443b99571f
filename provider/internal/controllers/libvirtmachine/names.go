package libvirtmachine

import (
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// Everything on a host is named from the UUID in spec.providerID, which is written before anything is
// made, and from the machine's namespace and name: a controller that begins anew finds what was made, and
// nothing that is another machine's.

// domainName is the name of the domain on its host.
func (s *scope) domainName() string {
	return hypervisor.DomainName(s.uuid, s.infra.Namespace, s.infra.Name)
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
