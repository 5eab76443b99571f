package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// Architecture is a CPU architecture, in the words that Kubernetes uses for nodes.
// +kubebuilder:validation:Enum=amd64;arm64;s390x;ppc64le
type Architecture string

// The architectures that Cluster API's contract for machine templates knows.
const (
	// ArchitectureAmd64 is x86-64.
	ArchitectureAmd64 Architecture = "amd64"
	// ArchitectureArm64 is 64-bit ARM.
	ArchitectureArm64 Architecture = "arm64"
	// ArchitectureS390x is IBM Z.
	ArchitectureS390x Architecture = "s390x"
	// ArchitecturePpc64le is 64-bit POWER, little endian.
	ArchitecturePpc64le Architecture = "ppc64le"
)

// CPUMode says which CPU a machine sees.
// +kubebuilder:validation:Enum=host-model;host-passthrough;maximum
type CPUMode string

// The CPU modes, in libvirt's words.
const (
	// CPUModeHostModel gives the machine the named CPU model that is nearest to the host's.
	CPUModeHostModel CPUMode = "host-model"
	// CPUModeHostPassthrough gives the machine the host's CPU as it is. Needed for nested virtualization.
	CPUModeHostPassthrough CPUMode = "host-passthrough"
	// CPUModeMaximum gives the machine everything that the hypervisor can show, emulated or not.
	CPUModeMaximum CPUMode = "maximum"
)

// CPUSpec says what kind of CPU a machine has. How many there are is in cpus.
type CPUSpec struct {
	// mode says which CPU the machine sees: host-model, host-passthrough or maximum.
	// Defaults to host-model.
	// +optional
	// +kubebuilder:default=host-model
	Mode CPUMode `json:"mode,omitempty"`

	// architecture of the machine: amd64, arm64, s390x or ppc64le. Only hosts of this architecture
	// are considered, and the image must be made for it. Defaults to amd64.
	// +optional
	// +kubebuilder:default=amd64
	Architecture Architecture `json:"architecture,omitempty"`

	// dedicated gives each virtual CPU a CPU of the host to itself, out of LibvirtHost.spec.dedicatedCPUs.
	// Only hosts with that many free ones are considered, and cpus can't change in place. Defaults to false.
	// +optional
	// +kubebuilder:default=false
	Dedicated *bool `json:"dedicated,omitempty"`
}

// FirmwareType is what starts a machine.
// +kubebuilder:validation:Enum=BIOS;UEFI
type FirmwareType string

// The firmware types.
const (
	// FirmwareBIOS is SeaBIOS. Only amd64 has it.
	FirmwareBIOS FirmwareType = "BIOS"
	// FirmwareUEFI is UEFI firmware that the host has installed (OVMF, AAVMF).
	FirmwareUEFI FirmwareType = "UEFI"
)

// FirmwareSpec says what starts a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || self.type == 'UEFI'",message="secureBoot needs type UEFI: set type to UEFI, or secureBoot to false"
type FirmwareSpec struct {
	// type of the firmware: BIOS or UEFI. Defaults to UEFI.
	// +optional
	// +kubebuilder:default=UEFI
	Type FirmwareType `json:"type,omitempty"`

	// secureBoot makes the firmware refuse a boot loader that isn't signed. Needs type UEFI, and a
	// host that has such firmware. Defaults to false.
	// +optional
	// +kubebuilder:default=false
	SecureBoot *bool `json:"secureBoot,omitempty"`
}

// TPMModel is the interface of a TPM.
// +kubebuilder:validation:Enum=CRB;TIS
type TPMModel string

// The TPM models.
const (
	// TPMModelCRB is the command response buffer interface of TPM 2.0.
	TPMModelCRB TPMModel = "CRB"
	// TPMModelTIS is the older interface, which guests without CRB drivers need.
	TPMModelTIS TPMModel = "TIS"
)

// TPMSpec gives a machine an emulated TPM 2.0. The host needs swtpm.
type TPMSpec struct {
	// model of the TPM: CRB or TIS. Defaults to CRB.
	// +optional
	// +kubebuilder:default=CRB
	Model TPMModel `json:"model,omitempty"`
}

// ImageFormat is the format of a disk image.
// +kubebuilder:validation:Enum=qcow2;raw
type ImageFormat string

// The image formats.
const (
	// ImageFormatQCOW2 is QEMU's own format.
	ImageFormatQCOW2 ImageFormat = "qcow2"
	// ImageFormatRaw is the plain bytes of a disk.
	ImageFormatRaw ImageFormat = "raw"
)

// ImageSpec says which image a machine starts from: one to download, or one that is on the hosts already.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.volume)",message="set either url (with checksum) or volume, and not both"
// +kubebuilder:validation:XValidation:rule="has(self.url) == has(self.checksum)",message="url and checksum go together: set both, or use volume"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || has(self.url) && self.url.startsWith('https://')",message="secretRef needs a url with https: credentials are sent over nothing else"
type ImageSpec struct {
	// url to download the image from, with http or https. It may serve the image as it is, or compressed with gzip,
	// xz or zstd. Each host gets it once. At most 2048 characters.
	// +optional
	// +kubebuilder:validation:MinLength=10
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+(/[^\s]*)?$`
	URL string `json:"url,omitempty"`

	// checksum of what url serves: sha256: or sha512:, then the sum in lower case hexadecimal. If that is compressed,
	// it is the checksum of the compressed file. An image that doesn't have it is never used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=135
	// +kubebuilder:validation:Pattern=`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$')",message="must be sha256: and 64, or sha512: and 128 hexadecimal digits in lower case"
	Checksum string `json:"checksum,omitempty"`

	// secretRef names a Secret in the machine's namespace with what the server at url asks for. On the hosts the
	// image is then one of that namespace alone. url has to be one with https.
	// +optional
	SecretRef ImageSecretReference `json:"secretRef,omitempty,omitzero"`

	// volume is the name of a volume in the host's storage pool for images. Only hosts that have it
	// are considered. At most 255 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Volume string `json:"volume,omitempty"`

	// format of the image: qcow2 or raw. Defaults to qcow2.
	// +optional
	// +kubebuilder:default=qcow2
	Format ImageFormat `json:"format,omitempty"`
}

// ImageCredentialsSecretType is the type of Secrets with credentials for image servers. Secrets of other types are never
// sent to a server.
const ImageCredentialsSecretType corev1.SecretType = "infrastructure.cluster.x-k8s.io/image-credentials"

// ImageSecretReference names a Secret with credentials for an image server.
type ImageSecretReference struct {
	// name of the Secret, of type infrastructure.cluster.x-k8s.io/image-credentials. Its keys are ca.crt, the authority
	// of the server's certificate in PEM, and either username and password, or token. They are sent to the server that
	// url names, and to none that it redirects to. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// CloneMethod says how a root disk comes from its image.
// +kubebuilder:validation:Enum=Overlay;Full
type CloneMethod string

// The clone methods.
const (
	// CloneOverlay makes a disk that holds only what differs from the image. Made in milliseconds.
	CloneOverlay CloneMethod = "Overlay"
	// CloneFull copies the image. Takes time and room, and then no longer needs the image.
	CloneFull CloneMethod = "Full"
)

// RootDiskSpec says what the disk is like that a machine starts from.
type RootDiskSpec struct {
	// size of the disk, at least 1Gi and at most 64Ti; the image must fit. May grow later, never
	// shrink. Defaults to 20Gi.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Gi')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="must be at least 1Gi and at most 64Ti"
	Size resource.Quantity `json:"size,omitempty,omitzero"`

	// pool is the storage pool for the disk: one of the host's storagePools.disks. Only hosts that
	// have it are considered. Defaults to the first of the host's pools.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Pool string `json:"pool,omitempty"`

	// clone says how the disk comes from the image: Overlay or Full. Defaults to Overlay.
	// +optional
	// +kubebuilder:default=Overlay
	Clone CloneMethod `json:"clone,omitempty"`
}

// ExtraDiskSpec is one more disk, empty at first.
type ExtraDiskSpec struct {
	// name of the disk, unique in the machine, and its serial number in the guest:
	// /dev/disk/by-id/virtio-<name>. Lower case letters, digits and '-', at most 20 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// size of the disk, at least 1Mi and at most 64Ti. May grow later, never shrink.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="must be at least 1Mi and at most 64Ti"
	Size resource.Quantity `json:"size,omitempty,omitzero"`

	// pool is the storage pool for the disk: one of the host's storagePools.disks. Defaults to the
	// first of the host's pools.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Pool string `json:"pool,omitempty"`
}

// InterfaceSpec is one network interface.
type InterfaceSpec struct {
	// network is the name of one of the host's networks, as in LibvirtHost.spec.networks. Only hosts
	// that have it are considered. Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Network string `json:"network,omitempty"`

	// macAddress of the interface, six octets in lower case hexadecimal with colons; not a multicast
	// address. Derived from the machine's UUID when empty. Can't be set in templates and pools, where
	// several machines would share it.
	// +optional
	// +kubebuilder:validation:MinLength=17
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`
	MACAddress string `json:"macAddress,omitempty"`

	// addressesFromPools are the IPAM pools to claim an address from, one address from each, at most
	// four. The interface uses DHCP when there are none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	AddressesFromPools []ipamv1.IPPoolReference `json:"addressesFromPools,omitempty"`

	// nameservers are the IP addresses of the DNS servers that the interface uses, at most eight: pools
	// give addresses and gateways only. With DHCP they are used besides those that it gives.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=45
	Nameservers []string `json:"nameservers,omitempty"`
}

// HostDeviceSpec asks for PCI devices of the host, of one model.
type HostDeviceSpec struct {
	// name of this request, unique in the machine. Lower case letters, digits and '-', at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// vendorID is the PCI vendor ID: four hexadecimal digits in lower case, for example 10de.
	// +required
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}$`
	VendorID string `json:"vendorID,omitempty"`

	// productID is the PCI product ID: four hexadecimal digits in lower case, for example 20b5.
	// +required
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}$`
	ProductID string `json:"productID,omitempty"`

	// count is the number of such devices, from 1 to 16. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count int32 `json:"count,omitempty"`
}

// HugepageSize is the size of a huge page.
// +kubebuilder:validation:Enum="2Mi";"1Gi"
type HugepageSize string

// The sizes of huge pages.
const (
	// Hugepages2Mi is a page of 2 MiB.
	Hugepages2Mi HugepageSize = "2Mi"
	// Hugepages1Gi is a page of 1 GiB.
	Hugepages1Gi HugepageSize = "1Gi"
)

// HugepagesSpec backs the memory of a machine with huge pages that the host has set aside.
type HugepagesSpec struct {
	// pageSize is the size of a page: 2Mi or 1Gi. memory must be a multiple of it. Defaults to 2Mi.
	// +optional
	// +kubebuilder:default="2Mi"
	PageSize HugepageSize `json:"pageSize,omitempty"`
}

// BootstrapFormat is the format of bootstrap data that an image understands.
// +kubebuilder:validation:Enum=cloud-config;ignition
type BootstrapFormat string

// The bootstrap formats, in the words that bootstrap providers put in the Secret's format key.
const (
	// BootstrapFormatCloudConfig is for images with cloud-init; it travels on a NoCloud disk.
	BootstrapFormatCloudConfig BootstrapFormat = "cloud-config"
	// BootstrapFormatIgnition is for images with Ignition; it travels by the firmware configuration device.
	BootstrapFormatIgnition BootstrapFormat = "ignition"
)
