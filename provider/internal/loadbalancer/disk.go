package loadbalancer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// The disk of a load balancer is its seed and, behind that, an area with HAProxy's configuration. The
// host writes the area while the guest runs, and the guest reads it past its cache. What it reads may be
// half of one write and half of another, so that the area begins with a line that has the length and the hash of
// what follows: the guest takes nothing else. To write a configuration again changes nothing.
const (
	// AreaOffset is where the area begins, in bytes, and AreaSize how large it is.
	AreaOffset = 1 << 20
	AreaSize   = 64 << 10

	// areaMark begins the area. A guest that finds another one leaves it alone.
	areaMark = "haproxy.cfg"
)

// Disk returns the content of a load balancer's disk: its seed, and the area with a configuration of
// HAProxy. It has the same size always. It is an error when one of them is too long.
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
