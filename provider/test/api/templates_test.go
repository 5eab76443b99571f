package api

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"

	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

// TestTemplatesAreAccepted: the API server with the webhooks accepts the provider's objects in every template, with the
// defaults.
func TestTemplatesAreAccepted(t *testing.T) {
	w := theWorld(t)
	files, err := filepath.Glob("../../templates/*.yaml")
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file)
			g.Expect(err).ToNot(HaveOccurred())
			rendered, err := yamlprocessor.NewSimpleProcessor().Process(content, valueOfVariable)
			g.Expect(err).ToNot(HaveOccurred())

			reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(rendered)))
			for {
				document, err := reader.Read()
				if errors.Is(err, io.EOF) {
					return
				}
				g.Expect(err).ToNot(HaveOccurred())
				object := &unstructured.Unstructured{}
				g.Expect(yaml.Unmarshal(document, &object.Object)).To(Succeed())
				if object.GroupVersionKind().Group != infrav1.GroupVersion.Group {
					continue
				}
				object.SetNamespace("default")
				g.Expect(w.client.Create(t.Context(), object, client.DryRunAll)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
			}
		})
	}
}

func valueOfVariable(name string) (string, error) {
	values := map[string]string{
		"CLUSTER_NAME": "demo", "NAMESPACE": "default", "KUBERNETES_VERSION": "v1.36.3",
		"CONTROL_PLANE_MACHINE_COUNT": "1", "WORKER_MACHINE_COUNT": "1", "CONTROL_PLANE_ENDPOINT_IP": "192.0.2.10",
		"LIBVIRT_IMAGE_URL":              "https://images.example.com/node.qcow2",
		"LIBVIRT_IMAGE_CHECKSUM":         "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"LIBVIRT_HAPROXY_IMAGE_URL":      "https://images.example.com/haproxy.qcow2",
		"LIBVIRT_HAPROXY_IMAGE_CHECKSUM": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}
	if value, ok := values[name]; ok {
		return value, nil
	}
	return "", errors.New("not set")
}
