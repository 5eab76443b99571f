package hypervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// maxDomainName is how long the part of a domain's name is that is for people. The name becomes that
// of files on the host.
const maxDomainName = 180

// DomainName is the name of a LibvirtMachine's domain. The namespace and name are for people, and the beginning of the
// UUID tells domains of several management clusters apart.
func DomainName(uuid, namespace, name string) string {
	full := namespace + "." + name
	return fmt.Sprintf("%s.%s", strings.TrimRight(full[:min(len(full), maxDomainName)], ".-"), uuid[:min(len(uuid), 8)])
}

// ConsoleLogName is the name of the file that has what a domain's guest writes to its console.
func ConsoleLogName(domain string) string { return domain + "-console.log" }

// IsOf says whether the domain is that of a LibvirtMachine: its metadata name the machine, or it has neither an owner nor
// another name than the machine's domain. A UUID alone proves nothing: it isn't a secret.
func (d Domain) IsOf(uuid, namespace, name string) bool {
	if d.Owner == nil {
		return d.Name == DomainName(uuid, namespace, name)
	}
	return d.Owner.Namespace == namespace && d.Owner.Name == name
}

// VolumePrefix begins the names of all volumes of a LibvirtMachine: by the UUID in its provider ID, and by its own
// namespace and name, which say whose they are before there is a domain that does. Whoever gives another LibvirtMachine
// the same UUID gets volumes of their own. `clusterctl move` keeps all three.
func VolumePrefix(uuid, namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return uuid + "-" + hex.EncodeToString(sum[:8]) + "-"
}

// DiskName is the name that a LibvirtMachine's spec has for one of its volumes, whose names begin with prefix: "" for the
// root disk. false for what isn't a disk of the machine's own.
func DiskName(prefix string, ref VolumeRef) (string, bool) {
	what, own := strings.CutPrefix(ref.Name, prefix)
	if !own || what == "seed" {
		return "", false
	}
	if name, extra := strings.CutPrefix(what, "disk-"); extra {
		return name, true
	}
	return "", what == "root" || strings.HasPrefix(what, "root.") // a copy of the image is root.<something>
}

// ownName begins the names of all volumes that this provider makes: those of machines with the UUID of the domain,
// those of images and of managers with caplv-. A file system may take upper case for lower case.
var ownName = regexp.MustCompile(`(?i)^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-|caplv-)`)

// IsOwnName says whether a volume has a name that this provider gives to what it makes: disks and seeds of machines,
// which may belong to anybody, images and markers. A UUID isn't a secret, so knowing such a name gives no right to
// the volume.
func IsOwnName(volume string) bool { return ownName.MatchString(volume) }
