package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

const minimalMachine = `{image: {volume: ubuntu-2404}}`

var namesGiven atomic.Int32

// unique returns a name that no test has used, so that tests can run again with the same API server.
func unique(name string) string {
	return fmt.Sprintf("%s-%d", name, namesGiven.Add(1))
}

// minimalObjects returns an object of each kind with its required fields only.
func minimalObjects(name string) map[string]*unstructured.Unstructured {
	specs := map[string]string{
		"LibvirtCluster":             `{}`,
		"LibvirtClusterTemplate":     `{template: {spec: {}}}`,
		"LibvirtMachine":             minimalMachine,
		"LibvirtMachineTemplate":     `{template: {spec: ` + minimalMachine + `}}`,
		"LibvirtMachinePool":         `{template: {spec: ` + minimalMachine + `}}`,
		"LibvirtMachinePoolTemplate": `{template: {spec: {template: {spec: ` + minimalMachine + `}}}}`,
		"LibvirtHost":                `{uri: "test:///default"}`,
		"LibvirtClusterIdentity":     `{secretRef: {name: fleet}}`,
	}
	objects := map[string]*unstructured.Unstructured{}
	for kind, spec := range specs {
		objects[kind] = newObject(kind, name, spec)
	}
	return objects
}

func newObject(kind, name, spec string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": parse(spec)}}
	object.SetGroupVersionKind(infrav1.GroupVersion.WithKind(kind))
	object.SetName(name)
	if kind != "LibvirtHost" && kind != "LibvirtClusterIdentity" {
		object.SetNamespace("default")
	}
	return object
}

// parse parses YAML in a test.
func parse(content string) any {
	var value any
	if err := yaml.Unmarshal([]byte(content), &value); err != nil {
		panic(err)
	}
	return value
}

func TestDefaults(t *testing.T) {
	const machine = `{cpus: 2, memory: 4Gi, cpu: {mode: host-model, architecture: amd64, dedicated: false},
		firmware: {type: UEFI, secureBoot: false}, image: {volume: ubuntu-2404, format: qcow2},
		rootDisk: {size: 20Gi, clone: Overlay}, interfaces: [{network: default}],
		autostart: true, runPolicy: Always, guestAgent: true, bootstrapFormat: cloud-config}`
	const cluster = `{controlPlaneLoadBalancer: {type: KubeVIP}}`
	const pool = `{template: {spec: ` + machine + `}, strategy: {maxSurge: 1, maxUnavailable: 0}}`
	want := map[string]string{
		"LibvirtCluster":             cluster,
		"LibvirtClusterTemplate":     `{template: {spec: ` + cluster + `}}`,
		"LibvirtMachine":             machine,
		"LibvirtMachineTemplate":     `{template: {spec: ` + machine + `}}`,
		"LibvirtMachinePool":         pool,
		"LibvirtMachinePoolTemplate": `{template: {spec: ` + pool + `}}`,
		"LibvirtHost": `{uri: "test:///default", failureDomain: NAME, storagePools: {images: default, disks: [default]},
			networks: [{name: default, libvirtNetwork: default}], reserved: {cpus: 1, memory: 2Gi, storage: 10Gi},
			overcommit: {cpuPercent: 400, memoryPercent: 100}}`,
		"LibvirtClusterIdentity": `{secretRef: {name: fleet, namespace: caplv-system}}`,
	}

	w := theWorld(t)
	for kind, object := range minimalObjects(unique("defaults")) {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(w.client.Create(t.Context(), object)).To(Succeed())
			got, err := yaml.Marshal(object.Object["spec"])
			g.Expect(err).ToNot(HaveOccurred())
			g.Expect(got).To(MatchYAML(strings.ReplaceAll(want[kind], "NAME", object.GetName())))
		})
	}
}

func TestPortOfTheEndpointIsDefaulted(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	cluster := newObject("LibvirtCluster", unique("port"), `{controlPlaneEndpoint: {host: 192.0.2.10}}`)
	g.Expect(w.client.Create(t.Context(), cluster)).To(Succeed())
	port, _, err := unstructured.NestedInt64(cluster.Object, "spec", "controlPlaneEndpoint", "port")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(port).To(BeEquivalentTo(6443))
}

// TestColumns: kubectl shows all failure domains, and the message of a cluster that isn't Ready.
func TestColumns(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	cluster := &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: unique("column")}}
	g.Expect(w.client.Create(t.Context(), cluster)).To(Succeed())
	cluster.Status.FailureDomains = []clusterv1.FailureDomain{{Name: "rack-a"}, {Name: "rack-b"}}
	cluster.Status.FailureDomainNames = "rack-a, rack-b"
	cluster.Status.Conditions = []metav1.Condition{{Type: infrav1.ReadyCondition, Status: metav1.ConditionFalse, Reason: infrav1.NotReadyReason,
		Message: "* HostsAvailable: no host is Ready", LastTransitionTime: metav1.Now()}}
	g.Expect(w.client.Status().Update(t.Context(), cluster)).To(Succeed())
	table, err := w.clientset.RESTClient().Get().AbsPath("/apis", infrav1.GroupVersion.String(), "namespaces/default/libvirtclusters", cluster.Name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
	g.Expect(err).ToNot(HaveOccurred())
	var got metav1.Table
	g.Expect(json.Unmarshal(table, &got)).To(Succeed())
	cells := map[string]any{}
	for i, column := range got.ColumnDefinitions {
		cells[column.Name] = got.Rows[0].Cells[i]
	}
	g.Expect(cells).To(HaveKeyWithValue("Failure Domains", "rack-a, rack-b"))
	g.Expect(cells).To(HaveKeyWithValue("Ready", "False"))
	g.Expect(cells).To(HaveKeyWithValue("Message", "* HostsAvailable: no host is Ready"))
}

func TestSchemasRefuse(t *testing.T) {
	const checksum = `checksum: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	testRefusals(t, []refusal{
		{"LibvirtMachine", `{}`, "spec.image: Required value"},
		{"LibvirtMachine", `{image: {}}`, "set either url (with checksum) or volume, and not both"},
		{"LibvirtMachine", `{image: {url: "https://example.com/i", volume: v, ` + checksum + `}}`, "set either url (with checksum) or volume, and not both"},
		{"LibvirtMachine", `{image: {url: "https://example.com/i"}}`, "url and checksum go together"},
		{"LibvirtMachine", `{image: {volume: v, ` + checksum + `}}`, "url and checksum go together"},
		{"LibvirtMachine", `{image: {url: "file:///etc/passwd", ` + checksum + `}}`, "spec.image.url"},
		{"LibvirtMachine", `{image: {url: "https://example.com/i", checksum: "md5:x"}}`, "spec.image.checksum"},
		{"LibvirtMachine", `{image: {url: "https://example.com/i", checksum: "sha256:e3b0c442"}}`, "must be sha256: and 64, or sha512: and 128 hexadecimal digits in lower case"},
		{"LibvirtMachine", `{image: {url: "http://example.com/i", secretRef: {name: s}, ` + checksum + `}}`, "secretRef needs a url with https"},
		{"LibvirtMachine", `{image: {volume: v, secretRef: {name: s}}}`, "secretRef needs a url with https"},
		{"LibvirtMachine", `{image: {url: "https://example.com/i", secretRef: {}, ` + checksum + `}}`, "spec.image.secretRef.name"},
		{"LibvirtMachine", `{image: {volume: "../v"}}`, "spec.image.volume"},
		{"LibvirtMachine", `{image: {volume: v}, cpus: 0}`, "spec.cpus"},
		{"LibvirtMachine", `{image: {volume: v}, cpus: 513}`, "spec.cpus"},
		{"LibvirtMachine", `{image: {volume: v}, memory: 64Mi}`, `spec.memory: Invalid value: "64Mi": must be at least 256Mi and at most 16Ti`},
		{"LibvirtMachine", `{image: {volume: v}, memory: 4096}`, "must be at least 256Mi and at most 16Ti"},
		{"LibvirtMachine", `{image: {volume: v}, memory: much}`, "spec.memory"},
		{"LibvirtMachine", `{image: {volume: v}, rootDisk: {size: 1Mi}}`, "must be at least 1Gi and at most 64Ti"},
		{"LibvirtMachine", `{image: {volume: v}, firmware: {type: BIOS, secureBoot: true}}`, "secureBoot needs type UEFI"},
		{"LibvirtMachine", `{image: {volume: v}, interfaces: []}`, "spec.interfaces"},
		{"LibvirtMachine", `{image: {volume: v}, interfaces: [{macAddress: "01:00:5e:00:00:01"}]}`, "spec.interfaces[0].macAddress"},
		{"LibvirtMachine", `{image: {volume: v}, providerID: "libvirt:///00000000-0000-4000-8000-000000000001"}`, "providerID and hostName are written together"},
		{"LibvirtMachine", `{image: {volume: v}, providerID: "libvirt:///1", hostName: h}`, "spec.providerID"},
		{"LibvirtMachine", `{image: {volume: v}, extraDisks: [{name: a, size: 1Gi}, {name: a, size: 1Gi}]}`, "Duplicate value"},
		{"LibvirtCluster", `{controlPlaneLoadBalancer: {type: HAProxy}}`, "haproxy goes with type HAProxy"},
		{"LibvirtCluster", `{controlPlaneLoadBalancer: {haproxy: {image: {volume: v}}}}`, "haproxy goes with type HAProxy"},
		{"LibvirtCluster", `{controlPlaneLoadBalancer: {type: External, addressFromPool: {apiGroup: ipam.cluster.x-k8s.io, kind: P, name: p}}}`,
			"addressFromPool can't be used with type External"},
		{"LibvirtMachinePool", `{template: {spec: {image: {volume: v}}}, strategy: {maxSurge: "101%"}}`, "spec.strategy.maxSurge"},
		{"LibvirtHost", `{uri: "qemu:///system"}`, "spec.uri"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a}]}`, "set exactly one of libvirtNetwork, bridge and macvtapDevice"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, macvtapDevice: eth0}]}`, "set exactly one of"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, libvirtNetwork: net, bridgeType: OpenVSwitch}]}`, "bridgeType needs bridge"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, bridgeType: vde}]}`, `supported values: "Linux", "OpenVSwitch"`},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, libvirtNetwork: net, vlan: 42}]}`, "vlan needs bridge"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, vlan: 4095}]}`, "networks[0].vlan"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, macvtapDevice: eth0, mtu: 9000}]}`, "mtu can't be set with macvtapDevice"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, mtu: 1279}]}`, "networks[0].mtu"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, macvtapDevice: eth0, isolated: true}]}`, "isolated needs a Linux bridge or a libvirtNetwork"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, bridgeType: OpenVSwitch, isolated: true}]}`, "isolated needs a Linux bridge or a libvirtNetwork"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, macvtapDevice: eth0, filter: {name: f}}]}`, "filter needs a Linux bridge or a libvirtNetwork"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, bridgeType: OpenVSwitch, filter: {name: f}}]}`, "filter needs a Linux bridge or a libvirtNetwork"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, filter: {name: f, parameters: [{name: IP, value: "192.0.2.1"}]}}]}`,
			"MAC, IP and IPV6 are those of each machine, and can't be set"},
		{"LibvirtHost", `{uri: "test:///default", networks: [{name: a, bridge: br0, filter: {name: f, parameters: [{name: A, value: "a b"}]}}]}`, "parameters[0].value"},
		{"LibvirtHost", `{uri: "test:///default", consoleLogFolder: /var/log/../lib/libvirt/images}`, "spec.consoleLogFolder"},
		{"LibvirtHost", `{uri: "test:///default", consoleLogFolder: console}`, "spec.consoleLogFolder"},
		{"LibvirtHost", `{uri: "test:///default", overcommit: {cpuPercent: 50}}`, "spec.overcommit.cpuPercent"},
		{"LibvirtHost", `{uri: "test:///default", reserved: {memory: -1Gi}}`, "must be at least 0 and at most 16Ti"},
		{"LibvirtClusterIdentity", `{}`, "spec.secretRef.name: Required value"},
		{"LibvirtClusterIdentity", `{secretRef: {name: a}, allowedNamespaces: {list: [Team_A]}}`, "spec.allowedNamespaces.list[0]"},
	})
}

// TestNetworksOfAHost checks valid combinations of fields of networks.
func TestNetworksOfAHost(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	host := newObject("LibvirtHost", unique("networks"), `{uri: "test:///default", networks: [
		{name: a, bridge: br0, bridgeType: Linux, vlan: 42, mtu: 9000, isolated: true, filter: {name: clean-traffic, parameters: [{name: DHCPSERVER, value: "192.0.2.1"}]}},
		{name: b, bridge: br1, bridgeType: OpenVSwitch, vlan: 4094, mtu: 1280, isolated: false}, {name: c, macvtapDevice: eno1.42, isolated: false},
		{name: d, libvirtNetwork: default, mtu: 1500, isolated: true, filter: {name: tenants}}]}`)
	g.Expect(w.client.Create(t.Context(), host)).To(Succeed())
}

func TestWebhooksRefuse(t *testing.T) {
	testRefusals(t, []refusal{
		{"LibvirtMachine", `{image: {volume: v}, cpu: {architecture: arm64}, firmware: {type: BIOS}}`, "only amd64 has BIOS: use UEFI for arm64"},
		{"LibvirtMachine", `{image: {volume: v}, hugepages: {pageSize: 1Gi}, memory: 1500Mi}`, "must be a multiple of hugepages.pageSize, which is 1Gi"},
		{"LibvirtMachineTemplate", `{template: {spec: {image: {volume: v}, interfaces: [{macAddress: "52:54:00:00:00:01"}]}}}`, "belongs to one machine"},
		{"LibvirtCluster", `{controlPlaneEndpoint: {host: "https://192.0.2.10"}}`, "must be an IP address or a DNS name in lower case, without scheme and port"},
		{"LibvirtClusterTemplate", `{template: {spec: {controlPlaneEndpoint: {host: "a:b"}}}}`, "must be an IP address or a DNS name"},
		{"LibvirtMachinePool", `{template: {spec: {image: {volume: v}}}, strategy: {maxSurge: 0, maxUnavailable: 0}}`, "no machine could be replaced: raise one of them"},
		{"LibvirtMachinePoolTemplate", `{template: {spec: {template: {spec: {image: {volume: v}}}, providerIDList: [a]}}}`, "belongs to one pool"},
		{"LibvirtHost", `{uri: "qemu+tls://host/system"}`, "qemu+tls needs credentials: name a LibvirtClusterIdentity"},
		{"LibvirtHost", `{uri: "qemu+ssh://me:hunter2@host/system", identityRef: {name: i}}`, "store credentials in the Secret of a LibvirtClusterIdentity"},
		{"LibvirtClusterIdentity", `{secretRef: {name: a}, allowedNamespaces: {selector: {matchLabels: {"a b": c}}}}`, "spec.allowedNamespaces.selector.matchLabels"},
	})
}

type refusal struct{ kind, spec, message string }

func testRefusals(t *testing.T, refusals []refusal) {
	t.Helper()
	w := theWorld(t)
	for _, r := range refusals {
		t.Run(r.kind+" "+r.message, func(t *testing.T) {
			g := NewWithT(t)
			err := w.client.Create(t.Context(), newObject(r.kind, "refused", r.spec))
			g.Expect(err).To(MatchError(ContainSubstring(r.message)))
			g.Expect(err.Error()).ToNot(ContainSubstring("hunter2"))
		})
	}
}

func TestTemplatesAreImmutableButForTheTopologyControllersDryRun(t *testing.T) {
	w := theWorld(t)
	for kind, spec := range map[string]string{
		"LibvirtClusterTemplate":     `{template: {spec: {controlPlaneEndpoint: {host: 192.0.2.10}}}}`,
		"LibvirtMachineTemplate":     `{template: {spec: {image: {volume: ubuntu-2404}, cpus: 8}}}`,
		"LibvirtMachinePoolTemplate": `{template: {spec: {template: {spec: {image: {volume: ubuntu-2404}, cpus: 8}}}}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			object := minimalObjects(unique("immutable"))[kind]
			g.Expect(w.client.Create(t.Context(), object)).To(Succeed())

			// Server-side apply with the annotation, as in the topology controller.
			apply := newObject(kind, object.GetName(), spec)
			options := []client.ApplyOption{client.ForceOwnership, client.FieldOwner("test")}
			err := w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), options...)
			g.Expect(err).To(MatchError(ContainSubstring("is immutable: create a new template with the change, and refer to that one")))
			dryRun := append([]client.ApplyOption{client.DryRunAll}, options...)
			err = w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), dryRun...)
			g.Expect(err).To(MatchError(ContainSubstring("is immutable")))

			apply.SetAnnotations(map[string]string{clusterv1.TopologyDryRunAnnotation: ""})
			g.Expect(w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(apply), dryRun...)).To(Succeed())
		})
	}
}

func TestMachinesChangeInPlaceAsDocumented(t *testing.T) {
	w, g := theWorld(t), NewWithT(t)
	machine := minimalObjects(unique("in-place"))["LibvirtMachine"]
	g.Expect(w.client.Create(t.Context(), machine)).To(Succeed())

	patch := func(spec string) error {
		before := machine.DeepCopy()
		after := machine.DeepCopy()
		for field, value := range parse(spec).(map[string]any) {
			after.Object["spec"].(map[string]any)[field] = value
		}
		if err := w.client.Patch(t.Context(), after, client.MergeFrom(before)); err != nil {
			return err
		}
		machine = after
		return nil
	}
	g.Expect(patch(`{providerID: "libvirt:///00000000-0000-4000-8000-000000000001", hostName: host-1}`)).To(Succeed())
	g.Expect(patch(`{cpus: 4, memory: 8Gi, rootDisk: {size: 30Gi, clone: Overlay}}`)).To(Succeed())
	g.Expect(patch(`{rootDisk: {size: 20Gi, clone: Overlay}}`)).To(MatchError(ContainSubstring("a disk can grow and can't shrink: must be at least 30Gi")))
	g.Expect(patch(`{hostName: host-2}`)).To(MatchError(ContainSubstring("spec.hostName: Forbidden: is immutable once set")))
	g.Expect(patch(`{image: {volume: other, format: qcow2}}`)).To(MatchError(ContainSubstring("the machine has to be replaced")))
}
