package format_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/format"
)

var errFull = errors.New("no space left")

var all = format.List[int]{
	{Name: "decimal", Write: func(n int, w io.Writer) error { _, err := fmt.Fprintf(w, "%d", n); return err }},
	{Name: "hex", Write: func(n int, w io.Writer) error { _, err := fmt.Fprintf(w, "%x", n); return err }},
	{Name: "full", Write: func(int, io.Writer) error { return errFull }},
}

func TestWrite(t *testing.T) {
	for name, want := range map[string]string{"decimal": "255", "hex": "ff"} {
		var out strings.Builder
		if err := all.Write(name, "the number", 255, &out); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v; want %q", name, out.String(), err, want)
		}
	}
	if err := all.Write("full", "the number", 255, io.Discard); !errors.Is(err, errFull) || err.Error() != "writing the number as full: no space left" {
		t.Errorf("full: %v", err)
	}
}

func TestNames(t *testing.T) {
	if names := all.Names(); !slices.Equal(names, []string{"decimal", "hex", "full"}) {
		t.Errorf("names: %v", names)
	}
	for _, name := range all.Names() {
		if err := all.Parse(name); err != nil {
			t.Error(err)
		}
	}
	want := `"octal" isn't a format: use decimal, hex, full`
	if err := all.Parse("octal"); err == nil || err.Error() != want {
		t.Errorf("Parse: %v; want %s", err, want)
	}
	if err := all.Write("octal", "the number", 255, io.Discard); err == nil || err.Error() != want {
		t.Errorf("Write: %v; want %s", err, want)
	}
}
