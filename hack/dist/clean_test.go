package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/clusterctl-release/clusterctl-release/internal/image"
	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

var cleanMachine = flag.Bool("clean-machine", false, "install the tool in each way on a clean Debian (make clean-machine)")

// machine is a root file system in which programs run without a network.
type machine struct {
	root string
	// path is the PATH of programs, and home the user's folder.
	path, home string
	// user is the ID of the user who runs them; 0 is root.
	user uint32
}

// run runs a program of the machine in a folder and returns its output. The test fails if the program fails.
func (m machine) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	command.Path, command.Err = m.find(args[0]), nil
	command.Dir, command.Env = dir, []string{"PATH=" + m.path, "HOME=" + m.home, "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	command.SysProcAttr = &syscall.SysProcAttr{
		Chroot: m.root, Cloneflags: syscall.CLONE_NEWNET, Credential: &syscall.Credential{Uid: m.user, Gid: m.user},
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// find returns the path of a program in the machine.
func (m machine) find(name string) string {
	for _, folder := range filepath.SplitList(m.path) {
		if _, err := os.Stat(filepath.Join(m.root, folder, name)); err == nil {
			return filepath.Join(folder, name)
		}
	}
	return name
}

// copyIn copies a file into a folder of the machine, as an executable.
func (m machine) copyIn(t *testing.T, file, folder, name string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.MkdirAll(filepath.Join(m.root, folder), 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(m.root, folder, name), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// debian returns an archive with the root file system of a Debian: its essential packages, apt and the given packages.
// It is created once, which needs a network, and is then in the cache.
func debian(t *testing.T, packages ...string) string {
	t.Helper()
	prerequisite.Program(t, "mmdebstrap")
	if os.Geteuid() != 0 {
		prerequisite.Missing(t, "creating a Debian needs root")
	}
	cache, err := pinned.Cache()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--mode=root", "--variant=minbase", "--format=tar", "--include=" + strings.Join(packages, ","), `--aptopt=APT::Install-Recommends "false"`, "bookworm"}
	sum := sha256.Sum256([]byte(strings.Join(args, " ")))
	archive := filepath.Join(cache, "debian", "bookworm-"+hex.EncodeToString(sum[:8])+".tar")
	if _, err := os.Stat(archive); err == nil {
		return archive
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Log("creating a Debian, once")
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", append(args, archive+".new")...).CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v: %s", err, out)
	}
	if err := os.Rename(archive+".new", archive); err != nil {
		t.Fatal(err)
	}
	return archive
}

// newDebian returns a machine with the root file system of an archive.
func newDebian(t *testing.T, archive string) machine {
	t.Helper()
	m := machine{root: t.TempDir(), home: "/root", path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--numeric-owner", "--file", archive, "--directory", m.root).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	if found := m.find("go"); found != "go" {
		t.Fatalf("the machine has Go: %s", found)
	}
	return m
}

// newFromImage returns a machine with the root file system of the tool's image and its user.
func newFromImage(t *testing.T, layout string) machine {
	t.Helper()
	index, _, err := image.Read(layout)
	if err != nil {
		t.Fatal(err)
	}
	images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}))
	if err != nil || len(images) != 1 {
		t.Fatalf("the layout has %d images for this platform: %v", len(images), err)
	}
	m := machine{root: t.TempDir(), path: "/", home: "/work", user: 65532}
	files := mutate.Extract(images[0])
	defer func() { _ = files.Close() }() // the archive is only read
	unpack := exec.CommandContext(t.Context(), "tar", "--extract", "--numeric-owner", "--directory", m.root)
	unpack.Stdin = files
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	if err := os.Chmod(m.root, 0o755); err != nil { // the user needs access
		t.Fatal(err)
	}
	return m
}

// downloads has the files for one platform that users download, and the public key of their signature.
type downloads struct {
	folder, version, base, public string
}

// download creates the files that users download for this platform.
func download(t *testing.T) downloads {
	t.Helper()
	private, public := keyPair(t)
	d := distribution{root: pinned.Root(t), version: "v1.2.3", commit: commit, modified: time.Unix(1700000000, 0).UTC(), keyFile: private}
	platform := program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	folder := filepath.Join(t.TempDir(), "dist")
	if err := d.make(t.Context(), []string{platform.String()}, folder); err != nil {
		t.Fatal(err)
	}
	return downloads{folder: folder, version: d.version, base: d.baseName(platform), public: public}
}

// copyTo copies the files to the user's folder of a machine.
func (d downloads) copyTo(t *testing.T, m machine) {
	t.Helper()
	for name := range readFolder(t, d.folder) {
		m.copyIn(t, filepath.Join(d.folder, name), m.home, name)
	}
	m.copyIn(t, d.public, m.home, "release.pub")
}

// onPage returns the commands of the page's block with a text, for this version and platform.
func (d downloads) onPage(t *testing.T, text string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(pinned.Root(t), "docs", "how-to", "packages.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(block[1], text) {
			return strings.NewReplacer("v0.1.0", d.version, "linux_amd64", "linux_"+runtime.GOARCH, "sudo ", "").Replace(block[1])
		}
	}
	t.Fatalf("the page has no block with %q", text)
	return ""
}

// firstReport runs commands in a provider's tree and returns the output of the last one, the first report.
func firstReport(t *testing.T, m machine, tree string, commands [][]string) string {
	t.Helper()
	dir := filepath.Join(m.home, filepath.Base(tree))
	target := filepath.Join(m.root, dir)
	if err := os.CopyFS(target, os.DirFS(tree)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(target, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(m.user), int(m.user))
	})
	if err != nil {
		t.Fatal(err)
	}
	var out string
	for _, command := range commands {
		out = m.run(t, dir, append([]string{"clusterctl", "release"}, command...)...)
	}
	return out
}

// ways returns functions that install the tool on a machine, by the way of installation.
func (d downloads) ways(t *testing.T) map[string]func(*testing.T) machine {
	layout := filepath.Join(t.TempDir(), "layout")
	makeImage := func(ctx context.Context) error {
		index, err := image.Tool(d.version).Build(ctx, pinned.Root(t), []program.Platform{{OS: runtime.GOOS, Architecture: runtime.GOARCH}})
		if err != nil {
			return err
		}
		return image.Write(layout, d.version, index)
	}
	if err := makeImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	base := debian(t, "openssl")
	onDebian := func(t *testing.T, texts ...string) machine {
		m := newDebian(t, base)
		m.copyIn(t, pinned.Tool(t, "clusterctl"), "/usr/local/bin", "clusterctl")
		d.copyTo(t, m)
		for _, text := range texts {
			t.Logf("%s", m.run(t, m.home, "sh", "-euc", d.onPage(t, text)))
		}
		return m
	}
	return map[string]func(*testing.T) machine{
		"archive": func(t *testing.T) machine { return onDebian(t, "--ignore-missing", "openssl", "tar -xzf") },
		"package": func(t *testing.T) machine { return onDebian(t, "apt-get") },
		"krew": func(t *testing.T) machine {
			m := onDebian(t)
			m.copyIn(t, pinned.Tool(t, "kubernetes-v1.36.3/kubectl"), "/usr/local/bin", "kubectl")
			m.copyIn(t, pinned.Tool(t, "krew"), "/usr/local/bin", "kubectl-krew")
			m.path += ":/root/.krew/bin"
			t.Logf("%s", m.run(t, m.home, "sh", "-euc", d.onPage(t, "krew install")))
			if out := m.run(t, m.home, "kubectl", "clusterctl-release", "version"); !strings.Contains(out, d.version) {
				t.Errorf("kubectl's plugin prints %q", out)
			}
			return m
		},
		"image": func(t *testing.T) machine {
			m := newFromImage(t, layout)
			m.copyIn(t, pinned.Tool(t, "clusterctl"), "/", "clusterctl")
			return m
		},
	}
}

// TestCleanMachine installs the tool in each way on a minimal Debian with clusterctl and without a network. The tool
// must run as clusterctl's plugin and print the same report on a provider's tree.
func TestCleanMachine(t *testing.T) {
	if !*cleanMachine {
		t.Skip("creating a Debian takes long: make clean-machine")
	}
	trees := map[string][][]string{treetest.Demo(t): {
		{"metadata", "add", "--version", "v0.4.0", "--contract", "v1beta2"}, {"build", "--version", "v0.4.0"}, {"check", "out/release"},
	}}
	t.Run("corpus", func(t *testing.T) {
		trees[filepath.Join(pinned.Corpus(t), "source", "metal3")] = [][]string{{"init"}, {"build", "--version", "v1.12.0"}, {"check", "out/release"}}
	})
	d := download(t)
	outputs := map[string]string{} // of another way's program, by the tree or command
	for way, install := range d.ways(t) {
		t.Run(way, func(t *testing.T) {
			begin := time.Now()
			m := install(t)
			compare := func(what, text, got string) {
				t.Helper()
				if want, ok := outputs[what]; ok && got != want || !strings.Contains(got, text) {
					t.Errorf("%s prints\n%s\nwant %q in it, and the output of another way\n%s", what, got, text, want)
				}
				outputs[what] = got
			}
			compare("version", "clusterctl-release "+d.version+" ", m.run(t, "/", "clusterctl", "release", "version"))
			compare("help", "move-plan", m.run(t, "/", "clusterctl", "release", "--help"))
			installed := time.Since(begin)
			for tree, commands := range trees {
				begin := time.Now()
				compare(tree, "0 errors, ", firstReport(t, m, tree, commands))
				t.Logf("installed in %s, then %s to the first report on %s", installed.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond), filepath.Base(tree))
			}
		})
	}
}
