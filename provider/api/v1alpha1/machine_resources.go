package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// Architecture is a CPU architecture, with the name that Kubernetes uses for nodes.
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

// CPUMode is the CPU model of a machine.
// +kubebuilder:validation:Enum=host-model;host-passthrough;maximum
type CPUMode string

// The CPU modes, with libvirt's names.
const (
	// CPUModeHostModel is the named CPU model that is closest to the host's CPU.
	CPUModeHostModel CPUMode = "host-model"
	// CPUModeHostPassthrough is the host's CPU without changes. Needed for nested virtualization.
	CPUModeHostPassthrough CPUMode = "host-passthrough"
	// CPUModeMaximum has all features of the hypervisor, including emulated ones.
	CPUModeMaximum CPUMode = "maximum"
)

// CPUSpec is the kind of CPU of a machine. Their number is in cpus.
type CPUSpec struct {
	// mode is the CPU model: host-model, host-passthrough or maximum. Defaults to host-model.
	// +optional
	// +kubebuilder:default=host-model
	Mode CPUMode `json:"mode,omitempty"`

	// architecture of the machine: amd64, arm64, s390x or ppc64le. Only hosts of this architecture
	// are considered, and the image must be made for it. Defaults to amd64.
	// +optional
	// +kubebuilder:default=amd64
	Architecture Architecture `json:"architecture,omitempty"`

	// dedicated gives each virtual CPU exclusive use of a CPU in LibvirtHost.spec.dedicatedCPUs. Only hosts with
	// enough free ones are considered, and cpus can't change in place. Defaults to false.
	// +optional
	// +kubebuilder:default=false
	Dedicated *bool `json:"dedicated,omitempty"`
}

// FirmwareType is the type of a machine's firmware.
// +kubebuilder:validation:Enum=BIOS;UEFI
type FirmwareType string

// The firmware types.
const (
	// FirmwareBIOS is SeaBIOS. Only amd64 has it.
	FirmwareBIOS FirmwareType = "BIOS"
	// FirmwareUEFI is the UEFI firmware of the host (OVMF, AAVMF).
	FirmwareUEFI FirmwareType = "UEFI"
)

// FirmwareSpec is the firmware of a machine.
// +kubebuilder:validation:XValidation:rule="!has(self.secureBoot) || !self.secureBoot || self.type == 'UEFI'",message="secureBoot needs type UEFI: set type to UEFI, or secureBoot to false"
type FirmwareSpec struct {
	// type of the firmware: BIOS or UEFI. Defaults to UEFI.
	// +optional
	// +kubebuilder:default=UEFI
	Type FirmwareType `json:"type,omitempty"`

	// secureBoot makes the firmware refuse unsigned boot loaders. Needs type UEFI, and a host with such firmware.
	// Defaults to false.
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

// ImageSpec is the image of a root disk: one to download, or a volume on the hosts.
// +kubebuilder:validation:XValidation:rule="has(self.url) != has(self.volume)",message="set either url (with checksum) or volume, and not both"
// +kubebuilder:validation:XValidation:rule="has(self.url) == has(self.checksum)",message="url and checksum go together: set both, or use volume"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || has(self.url) && self.url.startsWith('https://')",message="secretRef needs a url with https: credentials are sent over nothing else"
type ImageSpec struct {
	// url of the image, with http or https. The file may be compressed with gzip, xz or zstd. Each host downloads it
	// once. At most 2048 characters.
	// +optional
	// +kubebuilder:validation:MinLength=10
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+(/[^\s]*)?$`
	URL string `json:"url,omitempty"`

	// checksum of the file at url: sha256: or sha512:, followed by the sum in lower case hexadecimal. For a
	// compressed image it is the checksum of the compressed file. An image with another checksum is never used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=135
	// +kubebuilder:validation:Pattern=`^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`
	// +kubebuilder:validation:XValidation:rule="self.matches('^(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$')",message="must be sha256: and 64, or sha512: and 128 hexadecimal digits in lower case"
	Checksum string `json:"checksum,omitempty"`

	// secretRef names a Secret in the machine's namespace with credentials for the server. Other namespaces can't use
	// the downloaded image. Needs a url with https.
	// +optional
	SecretRef ImageSecretReference `json:"secretRef,omitempty,omitzero"`

	// volume is the name of a volume in the host's storage pool for images. Only hosts with this volume are
	// considered. At most 255 characters.
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
	// name of the Secret, of type infrastructure.cluster.x-k8s.io/image-credentials. Its keys are ca.crt (the CA of
	// the server's certificate, in PEM), and either username and password, or token. They are sent to the server in
	// url only, and not to servers that it redirects to. At most 253 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// CloneMethod says how a root disk is created from its image.
// +kubebuilder:validation:Enum=Overlay;Full
type CloneMethod string

// The clone methods.
const (
	// CloneOverlay creates an overlay with the differences from the image, within milliseconds.
	CloneOverlay CloneMethod = "Overlay"
	// CloneFull copies the image. The copy takes time and space, and doesn't need the image afterwards.
	CloneFull CloneMethod = "Full"
)

// RootDiskSpec is the disk that a machine boots from.
type RootDiskSpec struct {
	// size of the disk, at least 1Gi and at most 64Ti; the image must fit. May grow later, never
	// shrink. Defaults to 20Gi.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Gi')) >= 0 && quantity(string(self)).compareTo(quantity('64Ti')) <= 0",message="must be at least 1Gi and at most 64Ti"
	Size resource.Quantity `json:"size,omitempty,omitzero"`

	// pool is the storage pool of the disk, one of the host's storagePools.disks. Only hosts with this pool are
	// considered. Defaults to the first of the host's pools.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Pool string `json:"pool,omitempty"`

	// clone says how the disk is created from the image: Overlay or Full. Defaults to Overlay.
	// +optional
	// +kubebuilder:default=Overlay
	Clone CloneMethod `json:"clone,omitempty"`
}

// ExtraDiskSpec is an additional disk, initially empty.
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

	// pool is the storage pool of the disk, one of the host's storagePools.disks. Defaults to the first one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.+:-]*$`
	Pool string `json:"pool,omitempty"`
}

// InterfaceSpec is a network interface.
type InterfaceSpec struct {
	// network is the name of a network in LibvirtHost.spec.networks. Only hosts with this network are considered.
	// Defaults to default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Network string `json:"network,omitempty"`

	// macAddress of the interface, six octets in lower case hexadecimal with colons; not a multicast address. Derived
	// from the machine's UUID when empty. Can't be set in templates and pools, whose machines would share it.
	// +optional
	// +kubebuilder:validation:MinLength=17
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$`
	MACAddress string `json:"macAddress,omitempty"`

	// addressesFromPools are the IPAM pools of the interface's addresses, one address from each pool, at most four.
	// Defaults to DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	AddressesFromPools []ipamv1.IPPoolReference `json:"addressesFromPools,omitempty"`

	// nameservers are the IP addresses of the DNS servers that the interface uses, at most eight. IPAM pools have no
	// DNS servers. With DHCP, these servers are used in addition to those of DHCP.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=45
	Nameservers []string `json:"nameservers,omitempty"`
}

// HostDeviceSpec is a request for PCI devices of one model.
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

	// count is the number of devices, from 1 to 16. Defaults to 1.
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

// HugepagesSpec backs the memory of a machine with huge pages of the host.
type HugepagesSpec struct {
	// pageSize is the size of a page: 2Mi or 1Gi. memory must be a multiple of it. Defaults to 2Mi.
	// +optional
	// +kubebuilder:default="2Mi"
	PageSize HugepageSize `json:"pageSize,omitempty"`
}

// BootstrapFormat is a format of bootstrap data.
// +kubebuilder:validation:Enum=cloud-config;ignition
type BootstrapFormat string

// The bootstrap formats, with the names that bootstrap providers use for the key format of the Secret.
const (
	// BootstrapFormatCloudConfig is for images with cloud-init, which reads a NoCloud disk.
	BootstrapFormatCloudConfig BootstrapFormat = "cloud-config"
	// BootstrapFormatIgnition is for images with Ignition, which reads the firmware configuration device.
	BootstrapFormatIgnition BootstrapFormat = "ignition"
)
