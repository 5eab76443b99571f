package templates

import (
	"fmt"
	"strings"
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
	var text strings.Builder
	for i := range 2 * maxKnownLines {
		fmt.Fprintf(&text, "$%d\n", i)
	}
	long := "$" + strings.Repeat("x", maxKnownLine)
	if _, err := NewProcessor().GetVariables([]byte(text.String() + long)); err != nil {
		t.Fatal(err)
	}
	if n := known.Len(); n != maxKnownLines {
		t.Errorf("the cache has %d lines, want %d", n, maxKnownLines)
	}
	if _, ok := known.Get(long); ok {
		t.Error("the cache has a line that is too long")
	}
}
