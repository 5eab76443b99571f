package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
)

// timeouts are in place of kubeadm's, which are for real processors. Those of init and join have to be equal.
const timeouts = `timeouts:
  controlPlaneComponentHealthCheckSeconds: 900
  kubeletHealthCheckSeconds: 600
  kubernetesAPICallSeconds: 600
  etcdAPICallSeconds: 600
  tlsBootstrapSeconds: 900
  discoverySeconds: 900
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
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))] + "  "
			return line + lineStarts.ReplaceAllString(timeouts, indent+"$1")
		})
		Expect(os.WriteFile(file, []byte(raised), 0o644)).To(Succeed())
	}
}
