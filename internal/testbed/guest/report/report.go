// Package report has the report of a testbed's guest about itself.
package report

// A guest posts its Report as JSON to its gateway.
const (
	Port = "8080"
	Path = "/report"
)

// Report describes the input of a guest.
type Report struct {
	// MetaData of the seed, or empty without a seed.
	MetaData MetaData
	// UserDataSHA256 is the hash of the seed's user-data in hexadecimal.
	UserDataSHA256 string
	// IgnitionSHA256 is the hash of the Ignition configuration in hexadecimal, or empty without one.
	IgnitionSHA256 string
	// BootID is the kernel's random ID of this start. A guest whose host answers late posts the same report again.
	BootID string
	// SystemUUID is the UUID of the domain, from the firmware.
	SystemUUID string
	// Size of the machine.
	Size Size
	// Disks are the sizes in bytes of the disks with a serial number, by that number.
	Disks map[string]int64
	// TPM is the major version of the TPM's specification, such as 2, or empty without a TPM.
	TPM string
	// SecureBoot says whether secure boot is on.
	SecureBoot bool
	// MACAddress of the first interface, and its IPv4 Address, from DHCP or the seed.
	MACAddress, Address string
	// Addresses are all addresses of that interface in the kernel, with the lengths of their networks.
	Addresses []string
	// From is the source address of the report, which the host sets.
	From string
}

// MetaData has the seed's meta-data about the machine.
type MetaData struct {
	InstanceID    string `yaml:"instance-id"`
	LocalHostname string `yaml:"local-hostname"`
}

// Size is the size of a machine in its guest.
type Size struct {
	CPUs int
	// MemoryBytes is the kernel's usable memory, which is less than the machine's.
	MemoryBytes   int64
	RootDiskBytes int64
}
