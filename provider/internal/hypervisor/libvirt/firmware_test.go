package libvirt

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/domainxml"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// stateOnDisk lists the files of a domain other than its disks: firmware variables and the state of its TPM.
func stateOnDisk(t *testing.T, folder, uuid, name string) (variables, tpm []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // removed after the list
		}
		switch {
		case strings.HasSuffix(path, name+"_VARS.fd"):
			variables = append(variables, path)
		case strings.Contains(path, "/swtpm/"+uuid+"/"):
			tpm = append(tpm, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return variables, tpm
}

// TestFirmwareAndTPM starts machines with UEFI, secure boot and a TPM on libvirt and QEMU, and checks that their files
// on the host are deleted with them.
func TestFirmwareAndTPM(t *testing.T) {
	const uuid, name = "5c4f1ab6-7c5e-4a55-8f0e-2a3c6a1f0b12", "default-m-2"
	d := theDaemon(t)
	for _, tc := range []struct {
		name     string
		firmware infrav1.FirmwareSpec
		tpm      *infrav1.TPMSpec
		needs    []string
	}{
		{name: "secure boot", firmware: infrav1.FirmwareSpec{Type: infrav1.FirmwareUEFI, SecureBoot: ptr.To(true)},
			needs: []string{infrav1.HostFeatureUEFI, infrav1.HostFeatureSecureBoot}},
		{name: "secure boot and a TPM", firmware: infrav1.FirmwareSpec{Type: infrav1.FirmwareUEFI, SecureBoot: ptr.To(true)}, tpm: &infrav1.TPMSpec{Model: infrav1.TPMModelCRB},
			needs: []string{infrav1.HostFeatureUEFI, infrav1.HostFeatureSecureBoot, infrav1.HostFeatureTPM}},
		{name: "BIOS and a TPM of the older interface", firmware: infrav1.FirmwareSpec{Type: infrav1.FirmwareBIOS}, tpm: &infrav1.TPMSpec{Model: infrav1.TPMModelTIS},
			needs: []string{infrav1.HostFeatureTPM}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Cleanup(func() { d.empty(t) })
			g := NewWithT(t)
			ctx, cancel := context.WithTimeout(t.Context(), daemonTimeout)
			defer cancel()
			connection, err := d.connect(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			defer func() { _ = connection.Close() }()
			facts, err := connection.Facts(ctx)
			g.Expect(err).ToNot(HaveOccurred())
			for _, feature := range tc.needs {
				if !slices.Contains(facts.Features, feature) {
					libvirtd.Without(t, feature)
				}
			}
			root := hypervisor.VolumeRef{Pool: "default", Name: uuid + "-root"}
			_, err = connection.CreateVolume(ctx, hypervisor.VolumeSpec{VolumeRef: root, Format: hypervisor.FormatQCOW2, CapacityBytes: 1 << 30})
			g.Expect(err).ToNot(HaveOccurred())
			definition, err := domainxml.Machine{
				UUID: uuid, Name: name, Owner: hypervisor.Owner{Cluster: "c", Namespace: "default", Name: "m-2"}, Emulated: true,
				Spec: &infrav1.LibvirtMachineSpec{
					CPUs: 1, Memory: resource.MustParse("256Mi"),
					CPU:      infrav1.CPUSpec{Mode: infrav1.CPUModeMaximum, Architecture: infrav1.ArchitectureAmd64},
					Firmware: tc.firmware, TPM: tc.tpm, BootstrapFormat: infrav1.BootstrapFormatCloudConfig,
					GuestAgent: ptr.To(false),
				},
				RootDisk: domainxml.Disk{VolumeRef: root, Format: hypervisor.FormatQCOW2},
			}.Definition()
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(connection.DefineDomain(ctx, definition)).To(Succeed())
			g.Expect(connection.StartDomain(ctx, uuid)).To(Succeed())
			domain, err := connection.Domain(ctx, uuid)
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(domain.State).To(Equal(hypervisor.StateRunning))
			folder := filepath.Dir(d.PoolFolder())
			variables, tpm := stateOnDisk(t, folder, uuid, name)
			g.Expect(variables).To(HaveLen(map[bool]int{true: 1}[tc.firmware.Type == infrav1.FirmwareUEFI]))
			g.Expect(len(tpm) > 0).To(Equal(tc.tpm != nil), "%v", tpm)

			g.Expect(connection.StopDomain(ctx, uuid)).To(Succeed())
			g.Expect(connection.StartDomain(ctx, uuid)).To(Succeed(), "with the kept state")
			g.Expect(connection.StopDomain(ctx, uuid)).To(Succeed())
			g.Expect(connection.UndefineDomain(ctx, uuid)).To(Succeed())
			variables, tpm = stateOnDisk(t, folder, uuid, name)
			g.Expect(variables).To(BeEmpty())
			g.Expect(tpm).To(BeEmpty())
		})
	}
}
