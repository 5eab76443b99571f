package v1alpha1

// LentDevices are PCI devices of one model that machines may use.
type LentDevices struct {
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

	// addresses are the PCI addresses of the devices, for example 0000:3b:00.0, at most 64. Defaults to all devices
	// of the model.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=12
	// +kubebuilder:validation:items:MaxLength=12
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`
	Addresses []string `json:"addresses,omitempty"`
}

// HostDedicatedCPUs counts the CPUs for machines with cpu.dedicated.
type HostDedicatedCPUs struct {
	// count is the number of CPUs in spec.dedicatedCPUs that the host has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// free is the number of them that no domain uses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Free *int32 `json:"free,omitempty"`

	// message says which CPUs of spec.dedicatedCPUs the host doesn't have. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// HostDevices counts the PCI devices of one model.
type HostDevices struct {
	// vendorID is the PCI vendor ID.
	// +required
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=4
	VendorID string `json:"vendorID,omitempty"`

	// productID is the PCI product ID.
	// +required
	// +kubebuilder:validation:MinLength=4
	// +kubebuilder:validation:MaxLength=4
	ProductID string `json:"productID,omitempty"`

	// count is the number of devices that machines can use.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count *int32 `json:"count,omitempty"`

	// free is the number of them that no domain uses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Free *int32 `json:"free,omitempty"`

	// message says which devices machines can't use, and why. At most 1024 characters.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
