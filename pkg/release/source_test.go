package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadSource checks that a record is read with the release and is not one of its files, and that the error for a
// broken record contains advice.
func TestReadSource(t *testing.T) {
	commit := strings.Repeat("0123456789", 4)
	for name, test := range map[string]struct {
		record string
		want   string // the commit
		err    string
	}{
		"none":                  {},
		"a record":              {record: `{"commit": "` + commit + `", "files": {}}`, want: commit},
		"by a later tool":       {record: `{"commit": "` + commit + `", "other": 1}`, want: commit},
		"no JSON":               {record: "commit: x", err: "does not have the form that a build writes"},
		"no commit":             {record: "{}", err: `commit is ""`},
		"an abbreviated commit": {record: `{"commit": "0123456"}`, err: `commit is "0123456"`},
		"capital letters":       {record: `{"commit": "` + strings.Repeat("A", 40) + `"}`, err: "not the full hash"},
		"a SHA-256 commit":      {record: `{"commit": "` + strings.Repeat("a", 64) + `"}`, want: strings.Repeat("a", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "infrastructure-libvirt", "v0.1.0")
			if err := os.MkdirAll(dir, 0o750); err != nil {
				t.Fatal(err)
			}
			files := map[string]string{MetadataFile: "kind: Metadata"}
			if test.record != "" {
				files[SourceFile] = test.record
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, read := range []func() (*Release, error){
				func() (*Release, error) { return ReadVersion(dir) },
				func() (*Release, error) {
					all, err := Read(filepath.Dir(filepath.Dir(dir)))
					if err != nil {
						return nil, err
					}
					return all[0], nil
				},
			} {
				r, err := read()
				if test.err != "" {
					if err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "remove the file") {
						t.Errorf("error = %v, want %q, the folder and advice", err, test.err)
					}
					continue
				}
				if err != nil || len(r.Files) != 1 || (r.Source == nil) != (test.want == "") || r.Source != nil && r.Source.Commit != test.want {
					t.Errorf("release = %+v, error = %v, want one file and commit %q", r, err, test.want)
				}
			}
		})
	}
}

// TestChangedSinceBuild checks that the files are compared with those of the build.
func TestChangedSinceBuild(t *testing.T) {
	r := &Release{Files: []File{{Name: "a", Data: []byte("a")}, {Name: "b", Data: []byte("b")}}}
	if got := r.ChangedSinceBuild(); got != nil {
		t.Errorf("without a record: ChangedSinceBuild() = %v, want none", got)
	}
	r.Record(Source{Commit: "x"})
	if got := r.ChangedSinceBuild(); got != nil {
		t.Errorf("as built: ChangedSinceBuild() = %v, want none", got)
	}
	r.Files = []File{{Name: "a", Data: []byte("A")}, {Name: "c"}}
	got := r.ChangedSinceBuild()
	if len(got) != 3 || got[0] != (Difference{"a", "differs"}) || got[1] != (Difference{"c", "extra"}) || got[2] != (Difference{"b", "missing"}) {
		t.Errorf("ChangedSinceBuild() = %v, want a differs, c extra and b missing", got)
	}
}
