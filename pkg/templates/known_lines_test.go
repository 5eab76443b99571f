package templates

import (
	"testing"

	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// countingProcessor counts its searches for variables.
type countingProcessor struct {
	yamlprocessor.Processor
	searches *int
}

func (c countingProcessor) GetVariableMap(raw []byte) (map[string]*string, error) {
	*c.searches++
	return c.Processor.GetVariableMap(raw)
}

// TestKnownLines checks that a line is searched for variables once, for all callers and files.
func TestKnownLines(t *testing.T) {
	const common = "a: ${TEST_KNOWN_LINES}\nb: ${TEST_KNOWN_LINES:=x}\n"
	searches := 0
	for _, text := range []string{common, common, "c: d\n" + common, common + "e: ${TEST_KNOWN_LINES}"} {
		p := processor{Processor: countingProcessor{yamlprocessor.NewSimpleProcessor(), &searches}}
		if names, err := p.GetVariables([]byte(text)); err != nil || len(names) != 1 {
			t.Fatalf("GetVariables = %v, %v, want one name", names, err)
		}
	}
	if searches != 3 { // one for each line with a variable
		t.Errorf("searches = %d, want 3", searches)
	}
}

// TestKnownLinesAreBounded checks the limits of the cache: the number of lines, and the length of a line.
func TestKnownLinesAreBounded(t *testing.T) {
	lines := lineVariables{lines: map[string]map[string]*string{}}
	for i := range 2 * maxKnownLines {
		lines.add([]byte{'$', byte(i), byte(i >> 8)}, nil)
	}
	lines.add(make([]byte, maxKnownLine+1), nil)
	if n := len(lines.lines); n == 0 || n > maxKnownLines {
		t.Errorf("the cache has %d lines, want 1 to %d", n, maxKnownLines)
	}
	if _, ok := lines.find(make([]byte, maxKnownLine+1)); ok {
		t.Error("the cache has a line that is too long")
	}
}
