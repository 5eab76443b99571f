package checks_test

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// refusing are the checks whose errors mean that clusterctl refuses the components.
var refusing = []string{"components-parse", "variable-syntax", "namespace-single", "namespace-missing", "image-canonical", "ca-injection", "as-clusterctl"}

// TestRefusalsMatchClusterctl checks, for all cases of these checks, that they report an error if and only if
// clusterctl refuses the same components.
func TestRefusalsMatchClusterctl(t *testing.T) {
	for _, id := range refusing {
		data, err := os.ReadFile(filepath.Join(pinned.Root(t), "testdata", "checks", id+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var cases caseFile
		if err := yaml.UnmarshalStrict(data, &cases); err != nil {
			t.Fatal(err)
		}
		for _, c := range append(cases.Bad, cases.Good...) {
			t.Run(id+"/"+c.Name, func(t *testing.T) {
				r := c.apply(t)
				file, ok := r.Components()
				if !ok {
					return
				}
				refusal, required := installed(t, r, file.Data)
				if required {
					return // the result depends on the values of the variables
				}
				var found []string
				subject := &checks.Subject{Release: r}
				for _, id := range refusing {
					check, err := catalog.All().Find(id)
					if err != nil {
						t.Fatal(err)
					}
					if err := check.Run(t.Context(), subject, func(f checks.Finding) {
						// clusterctl accepts an object without a kind; every API server refuses it.
						if (f.Severity == checks.Error || (f.Severity == "" && check.Severity == checks.Error)) && (id != "components-parse" || f.Object == (manifest.Object{})) {
							found = append(found, id+": "+f.Message)
						}
					}); err != nil {
						t.Fatal(err)
					}
				}
				if (refusal != nil) != (len(found) > 0) {
					t.Errorf("clusterctl returns %v, the checks report %q", refusal, found)
				}
			})
		}
	}
}

// installed returns clusterctl's error for a components YAML, and whether the YAML has variables without a default.
func installed(t *testing.T, r *release.Release, raw []byte) (refusal error, required bool) {
	t.Helper()
	reader := config.NewMemoryReader()
	if err := reader.Init(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	client, err := config.New(t.Context(), "", config.InjectReader(reader))
	if err != nil {
		t.Fatal(err)
	}
	processor := yamlprocessor.NewSimpleProcessor()
	variables, err := processor.GetVariableMap(raw)
	if err != nil {
		return err, false
	}
	for _, fallback := range variables {
		required = required || fallback == nil
	}
	_, refusal = repository.NewComponents(repository.ComponentsInput{
		Provider: config.NewProvider(r.Provider.Name, "", r.Provider.Type), ConfigClient: client, Processor: processor, RawYaml: raw,
		Options: repository.ComponentsOptions{Version: r.Version},
	})
	return refusal, required
}
