package hypervisor

import "regexp"

// ownName begins the names of all volumes that this provider makes: those of machines with the UUID of the domain,
// those of images and of managers with caplv-. A file system may take upper case for lower case.
var ownName = regexp.MustCompile(`(?i)^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-|caplv-)`)

// IsOwnName says whether a volume has a name that this provider gives to what it makes: disks and seeds of machines,
// which may belong to anybody, images and markers. A UUID is no secret, so knowing such a name gives no right to
// the volume.
func IsOwnName(volume string) bool { return ownName.MatchString(volume) }
