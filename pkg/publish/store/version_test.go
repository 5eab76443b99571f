package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "good"), " ghs_fromfile \n")
	write(filepath.Join(dir, "empty"), " \n")
	write(filepath.Join(dir, "two"), "ghs_secretone\nghs_secrettwo\n")
	write(filepath.Join(dir, "long"), strings.Repeat("x", 1<<17))
	t.Setenv("A_TOKEN", "ghs_fromenv\n")
	for _, test := range []struct{ file, variable, token, want string }{
		{"good", "A_TOKEN", "ghs_fromfile", ""},
		{"", "A_TOKEN", "ghs_fromenv", ""},
		{"", "NO_TOKEN", "", ""},
		{"empty", "A_TOKEN", "", "is empty"},
		{"two", "A_TOKEN", "", "line breaks in it"},
		{"long", "A_TOKEN", "", "131072 bytes"},
		{"none", "A_TOKEN", "", "no such file"},
	} {
		file := test.file
		if file != "" {
			file = filepath.Join(dir, file)
		}
		token, err := ReadToken(file, test.variable)
		if token != test.token || (err != nil) != (test.want != "") || err != nil && (!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "ghs_")) {
			t.Errorf("%s, %s: %q, %v", test.file, test.variable, token, err)
		}
	}
}
