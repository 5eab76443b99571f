package hypervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// VolumePrefix begins the names of all volumes of a LibvirtMachine: by the UUID in its provider ID, and by its own
// namespace and name, which say whose they are before there is a domain that does. Whoever gives another LibvirtMachine
// the same UUID gets volumes of their own. `clusterctl move` keeps all three.
func VolumePrefix(uuid, namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return uuid + "-" + hex.EncodeToString(sum[:8]) + "-"
}

// ownName begins the names of all volumes that this provider makes: those of machines with the UUID of the domain,
// those of images and of managers with caplv-. A file system may take upper case for lower case.
var ownName = regexp.MustCompile(`(?i)^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-|caplv-)`)

// IsOwnName says whether a volume has a name that this provider gives to what it makes: disks and seeds of machines,
// which may belong to anybody, images and markers. A UUID is no secret, so knowing such a name gives no right to
// the volume.
func IsOwnName(volume string) bool { return ownName.MatchString(volume) }
