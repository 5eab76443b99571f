package templates_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

const classFile = "clusterclass-libvirt-default.yaml"

// required are the variables that a user must set, with sensible values.
var required = map[string]string{
	"CLUSTER_NAME":                "demo",
	"NAMESPACE":                   "default",
	"KUBERNETES_VERSION":          "v1.36.3",
	"CONTROL_PLANE_MACHINE_COUNT": "3",
	"WORKER_MACHINE_COUNT":        "2",
	"CONTROL_PLANE_ENDPOINT_IP":   "192.168.122.10",
	"LIBVIRT_IMAGE_URL":           "https://images.example.com/ubuntu-2404-kube-v1.36.3.qcow2",
	"LIBVIRT_IMAGE_CHECKSUM":      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
}

// requiredOf has the additional required variables of single templates, and notIn the ones in required that they lack.
var (
	requiredOf = map[string]map[string]string{"cluster-template-haproxy.yaml": {
		"LIBVIRT_HAPROXY_IMAGE_URL":      "https://images.example.com/haproxy.qcow2",
		"LIBVIRT_HAPROXY_IMAGE_CHECKSUM": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}}
	notIn = map[string][]string{"cluster-template-haproxy.yaml": {"CONTROL_PLANE_ENDPOINT_IP"}}
)

// needs returns the variables that a user of a template must set.
func needs(file string) map[string]string {
	needed := maps.Clone(required)
	maps.Copy(needed, requiredOf[file])
	for _, name := range notIn[file] {
		delete(needed, name)
	}
	return needed
}

// everything has a value for every variable, and none is the default.
var everything = map[string]string{
	"CONTROL_PLANE_ENDPOINT_PORT":     "443",
	"POD_CIDR":                        `["10.128.0.0/14", "fd00:1::/56"]`,
	"SERVICE_CIDR":                    `["10.64.0.0/16", "fd00:2::/112"]`,
	"LIBVIRT_IMAGE_FORMAT":            "raw",
	"LIBVIRT_NETWORK":                 "nodes",
	"LIBVIRT_CONTROL_PLANE_CPUS":      "4",
	"LIBVIRT_CONTROL_PLANE_MEMORY":    "8Gi",
	"LIBVIRT_CONTROL_PLANE_DISK_SIZE": "60Gi",
	"LIBVIRT_WORKER_CPUS":             "8",
	"LIBVIRT_WORKER_MEMORY":           "16Gi",
	"LIBVIRT_WORKER_DISK_SIZE":        "80Gi",
	"LIBVIRT_SSH_AUTHORIZED_KEYS":     `["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample me@example.com"]`,
	"LIBVIRT_HAPROXY_IMAGE_FORMAT":    "raw",
	"LIBVIRT_HAPROXY_CPUS":            "2",
	"LIBVIRT_HAPROXY_MEMORY":          "512Mi",
	"LIBVIRT_HAPROXY_DISK_SIZE":       "4Gi",
	"LIBVIRT_KUBE_VIP_IMAGE":          "registry.example.com/kube-vip:v1",
}

func clusterTemplates(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("cluster-template*.yaml")
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	NewWithT(t).Expect(files).To(HaveLen(4))
	return files
}

// render processes a template as clusterctl does.
func render(t *testing.T, file string, values ...map[string]string) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(file)
	g.Expect(err).ToNot(HaveOccurred())
	rendered, err := yamlprocessor.NewSimpleProcessor().Process(content, func(name string) (string, error) {
		for _, set := range values {
			if value, ok := set[name]; ok {
				return value, nil
			}
		}
		return "", errors.New("not set")
	})
	g.Expect(err).ToNot(HaveOccurred())
	return objectsOf(t, rendered)
}

func objectsOf(t *testing.T, content []byte) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufioReader(content))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		g.Expect(err).ToNot(HaveOccurred())
		object := &unstructured.Unstructured{}
		// YAMLToJSONStrict refuses duplicate keys.
		asJSON, err := yaml.YAMLToJSONStrict(document)
		g.Expect(err).ToNot(HaveOccurred(), string(document))
		if bytes.Equal(asJSON, []byte("null")) {
			continue
		}
		g.Expect(object.UnmarshalJSON(asJSON)).To(Succeed(), string(document))
		objects = append(objects, object)
	}
}
