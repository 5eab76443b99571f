package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
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

// leases are in place of those of the controller manager and the scheduler, which exit when they could not renew theirs
// in 10 seconds.
const leases = `clusterConfiguration:
  controllerManager: &leases
    extraArgs:
    - {name: leader-elect-lease-duration, value: 120s}
    - {name: leader-elect-renew-deadline, value: 100s}
    - {name: leader-elect-retry-period, value: 10s}
  scheduler: *leases
`

var (
	configurations = regexp.MustCompile(`(?m)^ *(?:init|join)Configuration:\n`)
	lineStarts     = regexp.MustCompile(`(?m)^(.)`)
)

// raiseTimeouts changes the flavors and the ClusterClass of a release for machines with emulated processors. All else
// in them is as it was released.
func raiseTimeouts(release string) {
	templates, err := filepath.Glob(filepath.Join(release, "cluster-template*.yaml"))
	Expect(err).ToNot(HaveOccurred())
	classes, err := filepath.Glob(filepath.Join(release, "clusterclass-*.yaml"))
	Expect(err).ToNot(HaveOccurred())
	Expect(templates).ToNot(BeEmpty())
	Expect(classes).ToNot(BeEmpty())
	for _, file := range slices.Concat(templates, classes) {
		content, err := os.ReadFile(file)
		Expect(err).ToNot(HaveOccurred())
		raised := configurations.ReplaceAllStringFunc(string(content), func(line string) string {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			line += lineStarts.ReplaceAllString(timeouts, indent+"  $1")
			if strings.HasPrefix(line, indent+"init") {
				line = lineStarts.ReplaceAllString(leases, indent+"$1") + line
			}
			return line
		})
		Expect(os.WriteFile(file, []byte(raised), 0o644)).To(Succeed())
	}
}

// healthCheckFlavor is the default flavor with a MachineHealthCheck for its workers, whose condition
// MachineDeploymentRemediationSpec sets. The release has no such flavor.
const healthCheckFlavor = "md-remediation"

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

// addHealthCheckFlavor adds healthCheckFlavor to a release.
func addHealthCheckFlavor(release string) {
	template, err := os.ReadFile(filepath.Join(release, "cluster-template.yaml"))
	Expect(err).ToNot(HaveOccurred())
	file := filepath.Join(release, "cluster-template-"+healthCheckFlavor+".yaml")
	Expect(os.WriteFile(file, append(template, healthCheck...), 0o644)).To(Succeed())
}
