package templates

import (
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// counted is a processor whose searches for variables are counted.
type counted struct {
	yamlprocessor.Processor
	searches *int
}

func (c counted) GetVariableMap(raw []byte) (map[string]*string, error) {
	*c.searches++
	return c.Processor.GetVariableMap(raw)
}

// TestRecentFiles: the variables of a file are searched for once, whoever asks.
func TestRecentFiles(t *testing.T) {
	raw := []byte("a: ${TEST_RECENT_FILES}\nb: ${TEST_RECENT_FILES:=x}\n")
	searches := 0
	for range 3 {
		p := processor{Processor: counted{yamlprocessor.NewSimpleProcessor(), &searches}}
		if names, err := p.GetVariables(raw); err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
	}
	if searches != 2 { // one a line with a variable
		t.Errorf("there were %d searches, want 2", searches)
	}
}
