package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
)

// timeouts are in place of kubeadm's, which are for real processors. Those of init and join have to be equal. The patches
// are in the node image: with them the kubelet is patient with the control plane's pods.
const timeouts = `patches:
  directory: /etc/kubeadm/patches
timeouts:
  controlPlaneComponentHealthCheckSeconds: 900
  kubeletHealthCheckSeconds: 600
  kubernetesAPICallSeconds: 600
  etcdAPICallSeconds: 600
  tlsBootstrapSeconds: 900
  discoverySeconds: 900
`

// clusterConfiguration has longer leases for the controller manager and the scheduler, which exit when they can't renew
// them in 10 seconds, an etcd that waits longer than a second for its leader, and the kind of keys that takes the least to
// make and to use.
const clusterConfiguration = `clusterConfiguration:
  encryptionAlgorithm: ECDSA-P256
  controllerManager: &leases
    extraArgs:
    - {name: leader-elect-lease-duration, value: 120s}
    - {name: leader-elect-renew-deadline, value: 100s}
    - {name: leader-elect-retry-period, value: 10s}
  scheduler: *leases
  etcd:
    local:
      extraArgs:
      - {name: heartbeat-interval, value: "1000"}
      - {name: election-timeout, value: "10000"}
`

// continuedJoin has a control plane machine go on where kubeadm has given up, up to five times. kubeadm gives etcd two
// seconds for a connection, which no setting changes.
const continuedJoin = `- |
  kubeadm() {
    command kubeadm "$@" && return
    [ "$1" = join ] && [ -f /etc/kubernetes/manifests/etcd.yaml ] || return 1
    for pause in 10 20 30 40 50; do
      sleep $pause
      command kubeadm "$@" --skip-phases=preflight,control-plane-prepare,kubelet-start && return
    done
    return 1
  }
`

var (
	commands       = regexp.MustCompile(`(?m)^( *)preKubeadmCommands:\n`)
	configurations = regexp.MustCompile(`(?m)^ *(?:init|join)Configuration:\n`)
	lineStarts     = regexp.MustCompile(`(?m)^(.)`)
)

// adjustFlavors changes the flavors and the ClusterClass of a release for machines with emulated processors, and the class
// for a spec that copies it. All else in them is as it was released.
func adjustFlavors(release string) {
	templates, err := filepath.Glob(filepath.Join(release, "cluster-template*.yaml"))
	Expect(err).ToNot(HaveOccurred())
	classes, err := filepath.Glob(filepath.Join(release, "clusterclass-*.yaml"))
	Expect(err).ToNot(HaveOccurred())
	Expect(templates).ToNot(BeEmpty())
	Expect(classes).ToNot(BeEmpty())
	for _, file := range slices.Concat(templates, classes) {
		content, err := os.ReadFile(file)
		Expect(err).ToNot(HaveOccurred())
		adjusted := configurations.ReplaceAllStringFunc(string(content), func(line string) string {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			line += lineStarts.ReplaceAllString(timeouts, indent+"  $1")
			if strings.HasPrefix(line, indent+"init") {
				line = lineStarts.ReplaceAllString(clusterConfiguration, indent+"$1") + line
			}
			return line
		})
		adjusted = commands.ReplaceAllStringFunc(adjusted, func(line string) string {
			indent, _, _ := strings.Cut(line, "pre")
			return line + lineStarts.ReplaceAllString(continuedJoin, indent+"$1")
		})
		if slices.Contains(classes, file) {
			adjusted = separatePools(adjusted)
		}
		Expect(os.WriteFile(file, []byte(adjusted), 0o644)).To(Succeed())
	}
}

// separatePools gives the machine pools of a ClusterClass a KubeadmConfigTemplate of their own. The release has one for
// all workers, and ClusterClassChangesSpec copies the template of each class of workers to a namespace under its name.
func separatePools(class string) string {
	const separator, name = "\n---\n", "name: libvirt-default-worker\n"
	documents := strings.Split(class, separator)
	template := slices.IndexFunc(documents, func(document string) bool { return strings.Contains(document, "\nkind: KubeadmConfigTemplate\n") })
	Expect(template).To(BeNumerically(">", 0))
	own := func(s string) string {
		Expect(s).To(ContainSubstring(name))
		return strings.Replace(s, name, "name: libvirt-default-pool\n", 1)
	}
	deployments, pools, found := strings.Cut(documents[0], "    machinePools:\n")
	Expect(found).To(BeTrue())
	documents[0] = deployments + "    machinePools:\n" + own(pools)
	return strings.Join(append(documents, own(documents[template])), separator)
}

// Flavors that specs of Cluster API ask for, made from those of the release.
const (
	// healthCheckFlavor has a MachineHealthCheck for the workers, whose condition MachineDeploymentRemediationSpec sets.
	healthCheckFlavor = "md-remediation"
	// controlPlaneHealthCheckFlavor has one for the control plane, whose machines wait for KCPRemediationSpec.
	controlPlaneHealthCheckFlavor = "kcp-remediation"
	// taintsFlavor has the taints that KCPAndMachineDeploymentRolloutSpec expects.
	taintsFlavor = "taints"
	// upgradesFlavor begins with the image of the old version, and has templates with that of the new one.
	upgradesFlavor = "upgrades"
	// topologyUpgradesFlavor has images by version.
	topologyUpgradesFlavor = "upgrades-topology"
	// oldTopologyFlavor has the image of the old version.
	oldTopologyFlavor = "old-topology"
	// selfHostedFlavor has nodes that get the managers' images, and memory for the managers.
	selfHostedFlavor = "self-hosted"
	// topologyTaintsFlavor has the taints that ClusterClassRolloutSpec expects.
	topologyTaintsFlavor = "taints-topology"
)

// addedFlavors are the flavors that addFlavors makes: each is a template of the release after replacements, with more
// objects behind it.
var addedFlavors = []struct {
	name, template string
	replacements   []string // pairs, of which the first has to be in the template
	objects        string
}{
	{name: healthCheckFlavor, template: "cluster-template.yaml", objects: healthCheck},
	{name: controlPlaneHealthCheckFlavor, template: "cluster-template.yaml", objects: controlPlaneHealthCheck, replacements: []string{
		"    preKubeadmCommands:\n", "    preKubeadmCommands:\n" + waitForSignal,
	}},
	{name: taintsFlavor, template: "cluster-template.yaml", replacements: []string{
		"  machineTemplate:\n    spec:\n", "  machineTemplate:\n    spec:\n" + taints,
		"  template:\n    spec:\n      clusterName:", "  template:\n    spec:\n" + taints + "      clusterName:",
	}},
	{name: upgradesFlavor, template: "cluster-template.yaml", replacements: oldImage, objects: upgradedTemplates},
	{name: topologyUpgradesFlavor, template: "cluster-template-topology.yaml", replacements: append([]string{"    - name: network\n", newImage + "    - name: network\n"}, oldImage...)},
	{name: oldTopologyFlavor, template: "cluster-template-topology.yaml", replacements: oldImage},
	{name: selfHostedFlavor, template: "cluster-template.yaml", replacements: []string{
		"    files:\n", "    files:\n" + mirror(),
		"    preKubeadmCommands:\n", "    preKubeadmCommands:\n" + readMirror,
		"      users:\n", lineStarts.ReplaceAllString("    files:\n"+mirror()+"    preKubeadmCommands:\n"+readMirror, "  $1") + "      users:\n",
		"${LIBVIRT_WORKER_MEMORY:=4Gi}", "2600Mi", "${LIBVIRT_WORKER_CPUS:=2}", "2",
	}},
	{name: topologyTaintsFlavor, template: "cluster-template-topology.yaml", replacements: []string{
		"      replicas: ${CONTROL_PLANE_MACHINE_COUNT}\n", "      replicas: ${CONTROL_PLANE_MACHINE_COUNT}\n" + taints,
		"        replicas: ${WORKER_MACHINE_COUNT}\n", "        replicas: ${WORKER_MACHINE_COUNT}\n" + lineStarts.ReplaceAllString(taints, "  $1"),
	}},
}

// oldImage puts the image of the old version in the place of that of the new one.
var oldImage = []string{"${LIBVIRT_IMAGE_URL}", "${LIBVIRT_OLD_IMAGE_URL}", "${LIBVIRT_IMAGE_CHECKSUM}", "${LIBVIRT_OLD_IMAGE_CHECKSUM}"}

const newImage = `    - name: imagesByVersion
      value:
      - version: ${KUBERNETES_VERSION_UPGRADE_TO}
        url: ${LIBVIRT_IMAGE_URL}
        checksum: ${LIBVIRT_IMAGE_CHECKSUM}
`

// mirror has containerd pull all images from the testbed's registry. The folder is one of those that containerd reads by
// default, but containerd 2.4 takes its default, two folders with a colon between them, for one.
func mirror() string {
	return `    - path: /etc/containerd/certs.d/_default/hosts.toml
      content: |
        server = "` + testbed.RegistryURL() + `"
    - path: /etc/containerd/config.toml
      append: true
      content: |
        [plugins.'io.containerd.cri.v1.images'.registry]
          config_path = '/etc/containerd/certs.d'
`
}

// readMirror has containerd read its configuration again: it has started before cloud-init has written mirror's files.
const readMirror = "    - systemctl restart containerd\n"

const taints = `      taints:
      - key: pre-existing-always-taint
        value: always-value
        effect: PreferNoSchedule
        propagation: Always
      - key: pre-existing-on-initialization-taint
        value: on-initialization-value
        effect: PreferNoSchedule
        propagation: OnInitialization
`

const healthCheck = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: ${CLUSTER_NAME}-md-0
  namespace: ${NAMESPACE}
spec:
  clusterName: ${CLUSTER_NAME}
  selector:
    matchLabels:
      cluster.x-k8s.io/deployment-name: ${CLUSTER_NAME}-md-0
  checks:
    nodeStartupTimeoutSeconds: 1800
    unhealthyNodeConditions:
    - type: e2e.remediation.condition
      status: "False"
      timeoutSeconds: 10
`

const controlPlaneHealthCheck = `---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata:
  name: ${CLUSTER_NAME}-control-plane
  namespace: ${NAMESPACE}
spec:
  clusterName: ${CLUSTER_NAME}
  selector:
    matchLabels:
      cluster.x-k8s.io/control-plane: ""
      mhc-test: fail
  checks:
    nodeStartupTimeoutSeconds: 30
    unhealthyNodeConditions:
    - type: e2e.remediation.condition
      status: "False"
      timeoutSeconds: 10
`

// waitForSignal has a machine wait until a ConfigMap of the management cluster says "pass", and acknowledge it.
const waitForSignal = `    - |
      signal() {
        curl --silent --insecure --fail --max-time 20 --header "Authorization: Bearer ${TOKEN}" "$@" ${SERVER}/api/v1/namespaces/${NAMESPACE}/configmaps/mhc-test
      }
      until signal | grep --quiet '"signal": *"pass"'; do
        sleep 2
      done
      signal --request PATCH --header 'Content-Type: application/merge-patch+json' --data '{"data":{"signal":"ack-pass"}}'
`

const upgradedTemplates = `---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachineTemplate
metadata:
  name: ${CONTROL_PLANE_MACHINE_TEMPLATE_UPGRADE_TO}
  namespace: ${NAMESPACE}
spec:
  template:
    spec:
      cpus: ${LIBVIRT_CONTROL_PLANE_CPUS}
      memory: ${LIBVIRT_CONTROL_PLANE_MEMORY}
      image:
        url: ${LIBVIRT_IMAGE_URL}
        checksum: ${LIBVIRT_IMAGE_CHECKSUM}
      rootDisk:
        size: ${LIBVIRT_CONTROL_PLANE_DISK_SIZE}
      interfaces:
      - network: ${LIBVIRT_NETWORK:=default}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachineTemplate
metadata:
  name: ${WORKERS_MACHINE_TEMPLATE_UPGRADE_TO}
  namespace: ${NAMESPACE}
spec:
  template:
    spec:
      cpus: ${LIBVIRT_WORKER_CPUS}
      memory: ${LIBVIRT_WORKER_MEMORY}
      image:
        url: ${LIBVIRT_IMAGE_URL}
        checksum: ${LIBVIRT_IMAGE_CHECKSUM}
      rootDisk:
        size: ${LIBVIRT_WORKER_DISK_SIZE}
      interfaces:
      - network: ${LIBVIRT_NETWORK:=default}
`

// addFlavors adds addedFlavors to a release.
func addFlavors(release string) {
	for _, flavor := range addedFlavors {
		content, err := os.ReadFile(filepath.Join(release, flavor.template))
		Expect(err).ToNot(HaveOccurred())
		for pair := range slices.Chunk(flavor.replacements, 2) {
			Expect(string(content)).To(ContainSubstring(pair[0]), "the flavor %s is made from %s", flavor.name, flavor.template)
		}
		added := strings.NewReplacer(flavor.replacements...).Replace(string(content)) + flavor.objects
		Expect(os.WriteFile(filepath.Join(release, "cluster-template-"+flavor.name+".yaml"), []byte(added), 0o644)).To(Succeed())
	}
}
