// Command corecrds writes the CRDs of Cluster API's core and of its kubeadm providers, of the version
// in go.mod and without their descriptions, as one compressed file: go run ./hack/corecrds FILE.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// folders are the module's folders with the configuration for every management cluster.
var folders = []string{"core/config", "bootstrap/kubeadm/config", "controlplane/kubeadm/config"}

// mutating contains the used fields of webhook configurations.
type mutating struct {
	Kind     string `json:"kind"`
	Webhooks []struct {
		Rules []struct {
			APIGroups []string `json:"apiGroups"`
			Resources []string `json:"resources"`
		} `json:"rules"`
	} `json:"webhooks"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: corecrds FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "corecrds:", err)
		os.Exit(1)
	}
}

// write writes the file: a line of JSON for each CRD, in the order of folders and names.
func write(path string) error {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return fmt.Errorf("finding the sources of Cluster API: %w", err)
	}
	var packed bytes.Buffer
	// The header stays empty, so that the same CRDs result in the same bytes.
	compress, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(compress)
	lines.SetEscapeHTML(false)
	for _, folder := range folders {
		if err := writeFolder(lines, filepath.Join(strings.TrimSpace(string(module)), folder)); err != nil {
			return fmt.Errorf("%s of Cluster API: %w", folder, err)
		}
	}
	if err := compress.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// writeFolder writes a line for each CRD, which records whether a webhook may change its objects.
func writeFolder(lines *json.Encoder, folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "crd/bases/*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("there are no CRDs")
	}
	changed, err := mutated(filepath.Join(folder, "webhook/manifests.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		crd, err := read(file)
		if err != nil {
			return err
		}
		// The file of a CRD is named after its group and its resource.
		crd["mutated"] = changed[strings.TrimSuffix(filepath.Base(file), ".yaml")]
		if err := lines.Encode(crd); err != nil {
			return fmt.Errorf("encoding %s: %w", file, err)
		}
	}
	return nil
}

// mutated returns the resources, as <group>_<resource>, of mutating webhooks.
func mutated(file string) (map[string]bool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	resources := map[string]bool{}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var c mutating
		if err := yaml.Unmarshal([]byte(document), &c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, webhook := range c.Webhooks {
			for _, rule := range webhook.Rules {
				if c.Kind == "MutatingWebhookConfiguration" && len(rule.APIGroups) == 1 && len(rule.Resources) == 1 {
					resources[rule.APIGroups[0]+"_"+rule.Resources[0]] = true
				}
			}
		}
	}
	return resources, nil
}

// read returns a CRD as JSON without the fields that validation does not need.
func read(file string) (map[string]any, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	strip(crd)
	delete(crd, "metadata")
	return crd, nil
}

// strip removes descriptions. A description is a text; a property of that name has a schema.
func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, isText := v["description"].(string); isText {
			delete(v, "description")
		}
		for _, field := range v {
			strip(field)
		}
	case []any:
		for _, item := range v {
			strip(item)
		}
	}
}
