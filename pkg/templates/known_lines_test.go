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

// TestKnownLines: the variables of a line are searched for once, for all callers and files.
func TestKnownLines(t *testing.T) {
	const common = "a: ${TEST_KNOWN_LINES}\nb: ${TEST_KNOWN_LINES:=x}\n"
	searches := 0
	for _, text := range []string{common, common, "c: d\n" + common, common + "e: ${TEST_KNOWN_LINES}"} {
		p := processor{Processor: counted{yamlprocessor.NewSimpleProcessor(), &searches}}
		if names, err := p.GetVariables([]byte(text)); err != nil || len(names) != 1 {
			t.Fatalf("%v, %v", names, err)
		}
	}
	if searches != 3 { // one for each line with a variable
		t.Errorf("there were %d searches, want 3", searches)
	}
}

// TestKnownLinesAreBounded: what is kept has a limit, in lines and in bytes of a line.
func TestKnownLinesAreBounded(t *testing.T) {
	lines := lineVariables{lines: map[string]map[string]*string{}}
	for i := range 2 * maxKnownLines {
		lines.add([]byte{'$', byte(i), byte(i >> 8)}, nil)
	}
	lines.add(make([]byte, maxKnownLine+1), nil)
	if n := len(lines.lines); n == 0 || n > maxKnownLines {
		t.Errorf("%d lines are kept, want %d at most", n, maxKnownLines)
	}
	if _, ok := lines.find(make([]byte, maxKnownLine+1)); ok {
		t.Error("a line that is too long is kept")
	}
}
