package image

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// thisPlatform is the platform of the tests' images, because its packages are in Go's cache.
var thisPlatform = program.Platform{OS: "linux", Architecture: runtime.GOARCH}

// build builds the manager's image from the sources in a folder.
func build(t *testing.T, root string) v1.ImageIndex {
	t.Helper()
	index, err := Manager("v1.2.3+build.4").Build(t.Context(), root, []program.Platform{thisPlatform})
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func digest(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

// copySources copies the files that git would commit to a new folder, and returns the folder.
func copySources(t *testing.T, root string) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, file := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // deleted and not committed
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestManager builds the manager's image from two folders, and checks its digest and content.
func TestManager(t *testing.T) {
	root := pinned.Root(t)
	index := build(t, root)
	t.Setenv("GOFLAGS", "-buildvcs=true -ldflags=-X=main.a=b") // settings of a user
	if here, there := digest(t, index), digest(t, build(t, copySources(t, root))); here != there {
		t.Errorf("the digest of the same sources in another folder is %s, want %s", there, here)
	}

	layout := filepath.Join(t.TempDir(), "layout")
	if err := Write(layout, Manager("v1.2.3+build.4").Tag(), index); err != nil {
		t.Fatal(err)
	}
	read, tag, err := Read(layout)
	if err != nil {
		t.Fatal(err)
	}
	if tag != "v1.2.3_build.4" || digest(t, read) != digest(t, index) {
		t.Errorf("the layout has the image %s@%s", tag, digest(t, read))
	}
	manifest, err := read.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := read.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	requireConfig(t, image)
	requireFiles(t, filesOf(t, image))

	manager := filepath.Join(t.TempDir(), "manager")
	if err := Extract(layout, thisPlatform, manager); err != nil {
		t.Fatal(err)
	}
	if err := Extract(layout, program.Platform{OS: "linux", Architecture: "s390x"}, manager); err == nil || !strings.Contains(err.Error(), "linux/s390x") {
		t.Errorf("a program for a platform without an image: %v", err)
	}
	requireStatic(t, manager)
	out, err := exec.CommandContext(t.Context(), manager, "--kubeconfig", filepath.Join(layout, "missing")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("missing")) {
		t.Errorf("the manager without an API server ends with %v: %s", err, out)
	}
}

// TestOf builds an image from an existing program.
func TestOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "manager")
	if err := os.WriteFile(file, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	image, err := Of(file, "/manager", thisPlatform)
	if err != nil {
		t.Fatal(err)
	}
	requireConfig(t, image)
	if manager := filesOf(t, image)["manager"]; string(manager.Data) != "a program" || manager.Mode != 0o755 {
		t.Errorf("the program is %+v", manager)
	}
	if _, err := Of(filepath.Join(t.TempDir(), "missing"), "/manager", thisPlatform); err == nil {
		t.Error("an image of a missing program is not an error")
	}
}

// requireConfig checks that an image starts /manager as a user other than root.
func requireConfig(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/manager"}) || config.Architecture != thisPlatform.Architecture {
		t.Errorf("the configuration is %+v", config)
	}
}

// filesOf returns the files of an image by their paths.
func filesOf(t *testing.T, image v1.Image) map[string]program.File {
	t.Helper()
	files := map[string]program.File{}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		archive, err := readAll(content)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(files, archive)
	}
	return files
}

// requireFiles fails the test unless an image has the manager, certificates and licences, and no other programs.
func requireFiles(t *testing.T, files map[string]program.File) {
	t.Helper()
	for path, f := range files {
		isProgram := f.Mode&0o111 != 0 && !strings.HasSuffix(path, "/")
		if isProgram != (path == "manager") {
			t.Errorf("%s has the mode %o", path, f.Mode)
		}
		if top, _, _ := strings.Cut(path, "/"); !slices.Contains([]string{"etc", "licenses", "manager", "tmp"}, top) {
			t.Errorf("the image has the unexpected file %s", path)
		}
	}
	if mode := files["tmp/"].Mode; mode != 0o1777 {
		t.Errorf("/tmp has the mode %o", mode)
	}
	if !bytes.Contains(files["etc/passwd"].Data, []byte("nonroot:x:65532:65532:")) {
		t.Errorf("/etc/passwd is %s", files["etc/passwd"].Data)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(files[certificates].Data) {
		t.Error("the image has no readable certificates")
	}
	for _, path := range []string{"go/LICENSE", program.Module + "/LICENSE", "k8s.io/api/LICENSE", "sigs.k8s.io/controller-runtime/LICENSE"} {
		if len(files["licenses/"+path].Data) < 500 {
			t.Errorf("the licence %s is missing", path)
		}
	}
}

func requireStatic(t *testing.T, path string) {
	t.Helper()
	binary, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	for _, part := range binary.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the program is linked dynamically")
		}
	}
}

// TestPush pushes to a real registry.
func TestPush(t *testing.T) {
	host := pinned.StartRegistry(t)
	dir := filepath.Join(t.TempDir(), "layout")
	index, err := random.Index(1000, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	push := func(index v1.ImageIndex) (string, error) {
		if err := Write(dir, "v0.1.0", index); err != nil {
			t.Fatal(err)
		}
		return Push(t.Context(), dir, host+"/team/demo")
	}
	want := host + "/team/demo:v0.1.0@" + digest(t, index)
	for _, time := range []string{"first", "second"} {
		if ref, err := push(index); err != nil || ref != want {
			t.Errorf("the %s push: %s, %v; want %s", time, ref, err, want)
		}
	}
	other, err := random.Index(1000, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push(other); err == nil || !strings.Contains(err.Error(), "exists with the digest "+digest(t, index)) {
		t.Errorf("another image under the same tag: %v", err)
	}
	ref, err := name.NewTag(host + "/team/demo:v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, pushed) != digest(t, index) {
		t.Errorf("the registry has the digest %s", digest(t, pushed))
	}
	if _, err := Push(t.Context(), dir, "127.0.0.1:1/demo"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1/demo:v0.1.0") {
		t.Errorf("a registry that does not answer: %v", err)
	}
}

// readAll returns the files of an archive by their paths.
func readAll(archive io.Reader) (map[string]program.File, error) {
	files := map[string]program.File{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files[header.Name] = program.File{Path: header.Name, Mode: header.Mode, Data: data}
	}
}
