package templates_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestKubeVIPsKubeconfig runs the commands of control plane machines: kube-vip's static pod, which no command changes,
// mounts super-admin.conf while kubeadm init runs, and admin.conf otherwise.
func TestKubeVIPsKubeconfig(t *testing.T) {
	templates := map[string][]*unstructured.Unstructured{
		"cluster-template.yaml":             render(t, "cluster-template.yaml", required),
		"cluster-template-machinepool.yaml": render(t, "cluster-template-machinepool.yaml", required),
		classFile:                           readClass(t),
	}
	for file, objects := range templates {
		for name, first := range map[string]bool{"first machine": true, "joining machine": false} {
			t.Run(file+"/"+name, func(t *testing.T) {
				g := NewWithT(t)
				content, err := os.ReadFile(file)
				g.Expect(err).ToNot(HaveOccurred())
				g.Expect(string(content)).To(MatchRegexp(`hostPath:\n +type: File\n +path: /etc/kubernetes/kube-vip\.conf\n`))

				root := t.TempDir()
				manifest := filepath.Join(root, "etc/kubernetes/manifests/kube-vip.yaml")
				kubeconfig := filepath.Join(root, "etc/kubernetes/kube-vip.conf")
				g.Expect(os.MkdirAll(filepath.Dir(manifest), 0o755)).To(Succeed())
				g.Expect(os.WriteFile(manifest, content, 0o600)).To(Succeed())
				mounted := "admin.conf"
				if first {
					mounted = "super-admin.conf"
					g.Expect(os.MkdirAll(filepath.Join(root, "run/kubeadm"), 0o755)).To(Succeed())
					g.Expect(os.WriteFile(filepath.Join(root, "run/kubeadm/kubeadm.yaml"), nil, 0o600)).To(Succeed())
				}
				runCommands(g, root, objects, "preKubeadmCommands")
				g.Expect(os.Readlink(kubeconfig)).To(Equal(mounted))
				runCommands(g, root, objects, "postKubeadmCommands")
				g.Expect(os.Readlink(kubeconfig)).To(Equal("admin.conf"))
				g.Expect(os.ReadFile(manifest)).To(Equal(content))
			})
		}
	}
}

// runCommands runs commands of the control plane's KubeadmConfig, with the paths of a machine below root.
func runCommands(g *WithT, root string, objects []*unstructured.Unstructured, field string) {
	paths := strings.NewReplacer("/etc/kubernetes", root+"/etc/kubernetes", "/run/kubeadm", root+"/run/kubeadm")
	ran := 0
	for _, object := range objects {
		for _, path := range [][]string{{"spec", "kubeadmConfigSpec", field}, {"spec", "template", "spec", "kubeadmConfigSpec", field}} {
			commands, _, err := unstructured.NestedStringSlice(object.Object, path...)
			g.Expect(err).ToNot(HaveOccurred())
			for _, command := range commands {
				out, err := exec.Command("sh", "-ec", paths.Replace(command)).CombinedOutput()
				g.Expect(err).ToNot(HaveOccurred(), string(out))
				ran++
			}
		}
	}
	g.Expect(ran).To(BeNumerically(">", 0), field)
}
