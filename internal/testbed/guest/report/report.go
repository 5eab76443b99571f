// Package report is what a guest of the testbed tells about itself.
package report

// A guest posts its Report as JSON to its gateway.
const (
	Port = "8080"
	Path = "/report"
)

// Report is what a guest was given.
type Report struct {
	// MetaData is that of the seed. Empty where there was no seed.
	MetaData MetaData
	// UserDataSHA256 is the hash of the seed's user-data in hexadecimal.
	UserDataSHA256 string
	// IgnitionSHA256 is the hash of the Ignition configuration in hexadecimal. Empty where there was none.
	IgnitionSHA256 string
	// SystemUUID is that of the domain, as the firmware tells it.
	SystemUUID string
	// Size is how large the machine is.
	Size Size
	// Disks are the sizes in bytes of the disks that have a serial number, by that.
	Disks map[string]int64
	// TPM is the major version of the TPM's specification, such as 2. Empty where there is none.
	TPM string
	// SecureBoot says whether the firmware started only what has a signature that it knows.
	SecureBoot bool
	// MACAddress of the first interface, and its Address of IPv4, by DHCP or as the seed says.
	MACAddress, Address string
	// Addresses are all of that interface as the kernel has them, each with the length of its network.
	Addresses []string
	// From is the address that the report came from, which the host writes.
	From string
}

// MetaData is what of the seed's meta-data makes the machine.
type MetaData struct {
	InstanceID    string `yaml:"instance-id"`
	LocalHostname string `yaml:"local-hostname"`
}

// Size is how large a machine is, as its guest sees it.
type Size struct {
	CPUs int
	// MemoryBytes are what the kernel has to give, which is less than the machine has.
	MemoryBytes   int64
	RootDiskBytes int64
}
