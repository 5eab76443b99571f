package test

import (
	"context"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// hardware: machines of a cluster without a control plane have the hardware of their specs, according to the hypervisor
// and to the guest.
func hardware(ctx context.Context, g *WithT, w *world) {
	c := w.newCluster(ctx, g, "hardware")
	c.createBare(ctx, g)
	c.createMachine(ctx, g, "full", func(spec *infrav1.LibvirtMachineSpec) {
		spec.TPM = &infrav1.TPMSpec{}
		spec.ExtraDisks = []infrav1.ExtraDiskSpec{{Name: "data", Size: resource.MustParse("64Mi")}}
		spec.RootDisk.Clone = infrav1.CloneFull
		spec.CPU.Mode = infrav1.CPUModeMaximum
		spec.Hugepages = &infrav1.HugepagesSpec{}
	})
	// The guest's boot loader isn't signed, so that the firmware never starts it.
	c.createMachine(ctx, g, "secure", func(spec *infrav1.LibvirtMachineSpec) {
		spec.Firmware.SecureBoot = ptr.To(true)
	})
	c.createMachine(ctx, g, "signed", func(spec *infrav1.LibvirtMachineSpec) {
		spec.Firmware.SecureBoot = ptr.To(true)
		variables, err := testbed.GuestVariables()
		g.Expect(err).ToNot(HaveOccurred())
		spec.Image.URL, spec.Image.Checksum = variables[testbed.SignedImageURL], variables[testbed.SignedImageChecksum]
		spec.Memory = resource.MustParse("384Mi") // with 256Mi it is reset during GRUB, and 320Mi are enough
	})
	const ignition = `{"ignition":{"version":"3.4.0"}}`
	c.createMachineOf(ctx, g, "ignited", map[string][]byte{"format": []byte("ignition"), "value": []byte(ignition)}, "", func(spec *infrav1.LibvirtMachineSpec) {
		spec.BootstrapFormat = infrav1.BootstrapFormatIgnition
	})

	full := c.started(ctx, g, "full")
	g.Expect(full.report.Disks).To(Equal(map[string]int64{"data": 64 << 20}))
	g.Expect(full.report.TPM).To(Equal("2"))
	g.Expect(full.report.SecureBoot).To(BeFalse())
	g.Expect(c.domainXML(g, full.infra)).To(And(
		ContainSubstring("<tpm model='tpm-crb'>"), ContainSubstring("<serial>data</serial>"), ContainSubstring("<feature enabled='no' name='enrolled-keys'/>"),
		ContainSubstring("<cpu mode='maximum'")))
	memory := full.infra.Spec.Memory.Value()
	g.Expect(c.hosts[full.infra.Spec.HostName].HugepageKiB(c.domainName(g, full))).To(BeEquivalentTo(memory >> 10))
	g.Expect(c.rootDiskXML(g, full.infra)).ToNot(ContainSubstring("/caplv-image-"), "a full clone has its own copy of the image")

	var ignited infrav1.LibvirtMachine
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: "ignited"}, &ignited)).To(Succeed())
		g.Expect(ignited.Status.Conditions).To(ContainElement(isCondition(infrav1.InstanceReadyCondition, "True")))
		reports, _ := c.hosts[ignited.Spec.HostName].Reports()
		g.Expect(reports).To(ContainElement(And(
			HaveField("SystemUUID", uuidOf(ignited.Spec.ProviderID)), HaveField("IgnitionSHA256", sha256Of([]byte(ignition))),
			HaveField("MetaData", BeZero()))))
	})
	g.Expect(c.rootDiskXML(g, ignited)).To(ContainSubstring("/caplv-image-"), "an overlay has its image as backing file")
	c.guests[uuidOf(ignited.Spec.ProviderID)] = deletedGuest{host: ignited.Spec.HostName, mac: ignited.Spec.Interfaces[0].MACAddress}

	var secure infrav1.LibvirtMachine
	eventually(g, func(g Gomega) {
		g.Expect(c.client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: "secure"}, &secure)).To(Succeed())
		g.Expect(secure.Status.Conditions).To(ContainElement(isCondition(infrav1.InstanceReadyCondition, "True")))
	})
	g.Expect(c.domainXML(g, secure)).To(And(
		ContainSubstring("<feature enabled='yes' name='enrolled-keys'/>"), ContainSubstring("<feature enabled='yes' name='secure-boot'/>"),
		MatchRegexp(`<loader [^>]*secure='yes'`), MatchRegexp(`<nvram template='[^']*\.ms\.fd'`)))
	g.Expect(c.started(ctx, g, "signed").report.SecureBoot).To(BeTrue())
	reports, _ := c.hosts[secure.Spec.HostName].Reports()
	g.Expect(reports).ToNot(ContainElement(HaveField("SystemUUID", uuidOf(secure.Spec.ProviderID))))
	c.guests[uuidOf(secure.Spec.ProviderID)] = deletedGuest{host: secure.Spec.HostName}
	c.delete(ctx, g)
}

func (c *cluster) domainXML(g *WithT, infra infrav1.LibvirtMachine) string {
	text, err := c.hosts[infra.Spec.HostName].DomainXML(uuidOf(infra.Spec.ProviderID))
	g.Expect(err).ToNot(HaveOccurred())
	return text
}

func (c *cluster) rootDiskXML(g *WithT, infra infrav1.LibvirtMachine) string {
	text, err := c.hosts[infra.Spec.HostName].VolumeXML(machine{infra: infra}.volume("root"))
	g.Expect(err).ToNot(HaveOccurred())
	return text
}

// createBare creates a cluster that has infrastructure only, on all hosts or in some failure domains.
func (c *cluster) createBare(ctx context.Context, g *WithT, failureDomains ...string) {
	meta := metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}
	infra := &infrav1.LibvirtCluster{ObjectMeta: meta}
	infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: c.endpoint.String(), Port: 6443}
	if len(failureDomains) > 0 {
		infra.Spec.HostSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "failure-domain", Operator: metav1.LabelSelectorOpIn, Values: failureDomains}}}
	}
	g.Expect(c.client.Create(ctx, infra)).To(Succeed())
	object := &clusterv1.Cluster{ObjectMeta: meta}
	object.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: c.key.Name}
	g.Expect(c.client.Create(ctx, object)).To(Succeed())
}

// createMachine creates a machine that starts from the guest's image, has unused user-data, and has no owner except the
// cluster.
func (c *cluster) createMachine(ctx context.Context, g *WithT, name string, change func(*infrav1.LibvirtMachineSpec)) {
	c.createMachineIn(ctx, g, name, "", change)
}

// createMachineIn is createMachine in a failure domain, or in any if it is empty.
func (c *cluster) createMachineIn(ctx context.Context, g *WithT, name, failureDomain string, change func(*infrav1.LibvirtMachineSpec)) {
	c.createMachineOf(ctx, g, name, map[string][]byte{"value": []byte("#cloud-config\n")}, failureDomain, change)
}

// createMachineOf is createMachineIn with a Secret of a bootstrap provider.
func (c *cluster) createMachineOf(
	ctx context.Context, g *WithT, name string, bootstrap map[string][]byte, failureDomain string, change func(*infrav1.LibvirtMachineSpec),
) {
	meta := metav1.ObjectMeta{Namespace: c.key.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: c.key.Name}}
	secret := &corev1.Secret{ObjectMeta: meta, Type: clusterv1.ClusterSecretType, Data: bootstrap}
	g.Expect(c.client.Create(ctx, secret)).To(Succeed())
	infra := &infrav1.LibvirtMachine{ObjectMeta: meta, Spec: c.guestSpec(g)}
	change(&infra.Spec)
	g.Expect(c.client.Create(ctx, infra)).To(Succeed())
	object := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.key.Name, FailureDomain: failureDomain, Bootstrap: clusterv1.Bootstrap{DataSecretName: &secret.Name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name},
	}}
	g.Expect(c.client.Create(ctx, object)).To(Succeed())
	// Bootstrap providers set an owner: clusterctl moves the objects that moved objects own.
	g.Expect(controllerutil.SetOwnerReference(object, secret, c.client.Scheme())).To(Succeed())
	g.Expect(c.client.Update(ctx, secret)).To(Succeed())
}

// guestSpec returns the spec of a machine of the provider's templates with the testbed's variables.
func (c *cluster) guestSpec(g *WithT) infrav1.LibvirtMachineSpec {
	variables, err := testbed.GuestVariables()
	g.Expect(err).ToNot(HaveOccurred())
	return infrav1.LibvirtMachineSpec{
		CPUs: 1, Memory: resource.MustParse(variables["LIBVIRT_WORKER_MEMORY"]),
		Image:      infrav1.ImageSpec{URL: variables["LIBVIRT_IMAGE_URL"], Checksum: variables["LIBVIRT_IMAGE_CHECKSUM"], Format: infrav1.ImageFormatQCOW2},
		RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse(variables["LIBVIRT_WORKER_DISK_SIZE"])},
		Interfaces: []infrav1.InterfaceSpec{{Network: "default"}},
	}
}
