package hypervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// maxDomainName is the maximum length of the readable part of a domain's name, which is also used for files on the
// host.
const maxDomainName = 180

// DomainName is the name of a LibvirtMachine's domain. The beginning of the UUID distinguishes domains of several
// management clusters.
func DomainName(uuid, namespace, name string) string {
	full := namespace + "." + name
	return fmt.Sprintf("%s.%s", strings.TrimRight(full[:min(len(full), maxDomainName)], ".-"), uuid[:min(len(uuid), 8)])
}

// ConsoleLogName is the name of the file with a domain's console log.
func ConsoleLogName(domain string) string { return domain + "-console.log" }

// IsOf reports whether the domain belongs to a LibvirtMachine: its metadata name the machine, or it has no owner and
// the name of the machine's domain. A UUID alone proves nothing, because it isn't secret.
func (d Domain) IsOf(uuid, namespace, name string) bool {
	if d.Owner == nil {
		return d.Name == DomainName(uuid, namespace, name)
	}
	return d.Owner.Namespace == namespace && d.Owner.Name == name
}

// VolumePrefix is the prefix of the names of a LibvirtMachine's volumes: the UUID in its provider ID, and a hash of
// its namespace and name. Another LibvirtMachine with a copied UUID gets other volumes. `clusterctl move` keeps
// all three.
func VolumePrefix(uuid, namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return uuid + "-" + hex.EncodeToString(sum[:8]) + "-"
}

// DiskName returns the name in a LibvirtMachine's spec of a volume with the given prefix ("" is the root disk), and
// false if the volume isn't a disk of the machine.
func DiskName(prefix string, ref VolumeRef) (string, bool) {
	suffix, own := strings.CutPrefix(ref.Name, prefix)
	if !own || suffix == "seed" {
		return "", false
	}
	if name, extra := strings.CutPrefix(suffix, "disk-"); extra {
		return name, true
	}
	return "", suffix == "root" || strings.HasPrefix(suffix, "root.") // a copy of the image is root.<something>
}

// ownName matches the prefixes of this provider's volumes: a UUID for machines, and caplv- for images and markers.
// File systems may ignore case.
var ownName = regexp.MustCompile(`(?i)^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-|caplv-)`)

// IsOwnName reports whether a volume has a name of this provider's own volumes: disks and seeds of machines, images
// and markers. Knowing such a name gives no right to use the volume.
func IsOwnName(volume string) bool { return ownName.MatchString(volume) }
