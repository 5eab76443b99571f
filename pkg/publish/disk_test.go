package publish

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// TestDiskChangesOnlyInDisk checks that every call that changes the disk is in disk.go or in its
// files for one operating system. The tests with kills and failures depend on it.
func TestDiskChangesOnlyInDisk(t *testing.T) {
	changes := regexp.MustCompile(`^(os\.(WriteFile|Rename|Mkdir\w*|Remove\w*|Create\w*|OpenFile|OpenRoot|OpenInRoot|Chmod|Chown|Lchown|Chtimes|Truncate|Link|Symlink|CopyFS|NewFile)` +
		`|io/ioutil\.\w+|golang\.org/x/sys/unix\.\w+|syscall\.([A-Z][a-z]\w*)|os/exec\.\w+)$`)
	// Methods of an open file or a root. The syntax tree has no types of receivers.
	methods := []string{"Chmod", "Chown", "Truncate", "Sync", "Write", "WriteAt"}
	allowed := []string{"disk.go", "disk_linux.go", "disk_other.go", "flock_unix.go"}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		imports := map[string]string{}
		for _, spec := range file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			local := filepath.Base(path)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			imports[local] = path
		}
		ast.Inspect(file, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			call := ""
			if of, ok := selector.X.(*ast.Ident); ok && imports[of.Name] != "" {
				call = imports[of.Name] + "." + selector.Sel.Name
			} else if slices.Contains(methods, selector.Sel.Name) && !strings.HasSuffix(name, "disk.go") {
				call = "method " + selector.Sel.Name
			}
			if !changes.MatchString(call) && !strings.HasPrefix(call, "method ") {
				return true
			}
			found++
			if !slices.Contains(allowed, name) {
				t.Errorf("%s: %s changes the disk outside of disk.go", set.Position(node.Pos()), call)
			}
			return true
		})
	}
	if found < 8 {
		t.Errorf("found only %d calls that change the disk, want at least 8: are the names in this test right?", found)
	}
}

// TestModesDoNotDependOnUmask publishes in processes with different umasks and compares all modes.
func TestModesDoNotDependOnUmask(t *testing.T) {
	t.Parallel()
	var trees []map[string]string
	for _, umask := range []string{"000", "022", "077"} {
		root := filepath.Join(t.TempDir(), "above", "repo")
		c := command(t, "first publish", root, "")
		c.Args = []string{"sh", "-c", "umask " + umask + " && exec " + shellQuote(os.Args[0])}
		c.Path = "/bin/sh"
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		found := tree(t, filepath.Dir(root))
		for name, entry := range found {
			found[name], _, _ = strings.Cut(entry, " ")
		}
		trees = append(trees, found)
	}
	want := map[string]string{
		".": "drwxr-xr-x", "repo": "drwxr-xr-x", "repo/clusterctl.yaml": "-rw-r--r--",
		"repo/infrastructure-libvirt": "drwxr-xr-x", "repo/infrastructure-libvirt/v0.1.0": "drwxr-xr-x",
		"repo/infrastructure-libvirt/v0.1.0/metadata.yaml":                  "-rw-r--r--",
		"repo/infrastructure-libvirt/v0.1.0/infrastructure-components.yaml": "-rw-r--r--",
		"repo/infrastructure-libvirt/v0.1.0/cluster-template-prod.yaml":     "-rw-r--r--",
	}
	for _, found := range trees {
		sameTree(t, want, found)
	}
}

// TestSyncedBeforeVisible checks the order of changes: files are synced before they are renamed to
// their place, and the folder with the new names is synced afterwards.
func TestSyncedBeforeVisible(t *testing.T) {
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "repo")
			operations, _ := s.finished(t, root)
			staging := filepath.Join(root, stagingFolder)
			staged := func(path string) bool {
				return strings.HasPrefix(path, filepath.Join(staging, stagedVersions)+"/") || path == filepath.Join(staging, configFile)
			}
			unsynced := map[string]string{}
			for _, op := range operations {
				inPlace := !strings.HasPrefix(op.path, staging) && filepath.Base(op.path) != lockFile
				switch {
				case op.name == "fsync":
					delete(unsynced, op.path)
				case staged(op.path) && slices.Contains([]string{"create", "write", "chmod"}, op.name):
					unsynced[op.path] = op.name
				case inPlace && op.name == "mkdir":
					unsynced[filepath.Dir(op.path)] = op.name
				case inPlace && (op.name == "rename" || op.name == "exchange"):
					for path, what := range unsynced {
						if staged(path) {
							t.Errorf("%s is visible before the %s of %s is synced", op.path, what, path)
						}
					}
					unsynced[filepath.Dir(op.path)] = op.name
				}
			}
			for path, what := range unsynced {
				if !staged(path) {
					t.Errorf("the %s in %s is never synced", what, path)
				}
			}
		})
	}
}

func TestReplaceWithoutExchangeRestores(t *testing.T) {
	root := filepath.Join(t.TempDir(), "repo")
	old, fresh := someRelease(libvirt, "v0.1.0-rc.0", "old"), someRelease(libvirt, "v0.1.0-rc.0", "new")
	publish(t, root, Options{}, old)
	place := filepath.Join(root, "infrastructure-libvirt", "v0.1.0-rc.0")
	broken := false
	opts := Options{Replace: true, disk: withoutExchange(disk{around: func(op operation, do func() error) error {
		if op.name == "rename" && op.path == place && !broken {
			broken = true
			return &fs.PathError{Op: op.name, Path: op.path, Err: syscall.EIO}
		}
		return do()
	}})}
	_, err := open(t, root, opts).Publish(t.Context(), []*release.Release{fresh})
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if d := old.Differences(mustRead(t, root, old)); len(d) > 0 {
		t.Errorf("the old version was not restored: %v", d)
	}
	publish(t, root, opts, fresh)
	if d := fresh.Differences(mustRead(t, root, fresh)); len(d) > 0 {
		t.Errorf("not replaced: %v", d)
	}
	if left := leftovers(tree(t, root)); len(left) > 0 {
		t.Errorf("leftover files: %v", left)
	}
}
