package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// keyPair writes a new key pair, and returns the paths of the private and the public key.
func keyPair(t *testing.T) (private, public string) {
	t.Helper()
	publicKey, privateKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	der, err := x509.MarshalPKCS8PrivateKey(privateKey)
	private = write("key.pem", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(publicKey)
	return private, write("key.pub", "PUBLIC KEY", der, err)
}

// TestDist creates all files for one platform twice, and checks them with the programs of users.
func TestDist(t *testing.T) {
	private, public := keyPair(t)
	platform := "linux/" + runtime.GOARCH
	run := func() (string, map[string][]byte) {
		t.Helper()
		folder := filepath.Join(t.TempDir(), "dist")
		d := distribution{root: pinned.Root(t), version: "v1.2.3-rc.1", commit: commit, modified: time.Unix(1700000000, 0).UTC(), keyFile: private}
		if err := d.make(t.Context(), []string{platform}, folder); err != nil {
			t.Fatal(err)
		}
		return folder, readFolder(t, folder)
	}
	folder, files := run()
	_, again := run()
	base := "clusterctl-release_v1.2.3-rc.1_linux_" + runtime.GOARCH
	for _, name := range []string{base + ".tar.gz", base + ".cdx.json", base + ".deb", "krew.yaml", "SHA256SUMS", provenance.File} {
		if len(files[name]) == 0 {
			t.Fatalf("%s is missing", name)
		}
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs when it is created again", name)
		}
	}

	sums := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = folder
	if out, err := sums.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK")) != 4 {
		t.Errorf("sha256sum --check: %v: %s", err, out)
	}
	var subjects []release.File
	for name, data := range files {
		if name != provenance.File {
			subjects = append(subjects, release.File{Name: name, Data: data})
		}
	}
	if claim, err := provenance.Check(t.Context(), files[provenance.File], "v1.2.3-rc.1", subjects, public); err != nil || claim.Commit != commit {
		t.Errorf("the provenance claims %v, %v", claim, err)
	}
	requireArchive(t, files[base+".tar.gz"])
	requireBill(t, files[base+".cdx.json"])
	requirePackage(t, filepath.Join(folder, base+".deb"))

	var plugin struct {
		Spec struct {
			Platforms []struct{ URI, SHA256, Bin string }
		}
	}
	if err := yaml.Unmarshal(files["krew.yaml"], &plugin); err != nil {
		t.Fatal(err)
	}
	if p := plugin.Spec.Platforms; len(p) != 1 || p[0].SHA256 != release.Digest(files[base+".tar.gz"]) || !strings.HasSuffix(p[0].URI, "/v1.2.3-rc.1/"+base+".tar.gz") {
		t.Errorf("krew's manifest is\n%s", files["krew.yaml"])
	}
}

func readFolder(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(folder, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// requireArchive fails the test unless an archive has the program, which must run, and its other files.
func requireArchive(t *testing.T, data []byte) {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"man/clusterctl-release-build.1": "Nov 2023", "man/clusterctl-release.1": "clusterctl-release v1.2.3-rc.1", "completions/clusterctl-release.bash": "bash completion",
		"completions/_clusterctl-release": "#compdef clusterctl-release", "completions/clusterctl-release.fish": "fish completion",
		"completions/clusterctl-release.ps1": "powershell completion", "licenses/go/LICENSE": "The Go Authors", "licenses/" + program.Module + "/LICENSE": "Apache License",
	} {
		if !bytes.Contains(files[file], []byte(text)) {
			t.Errorf("%s of the archive lacks %q", file, text)
		}
	}
	tool := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(tool, files[name], 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "version").Output(); err != nil || !strings.HasPrefix(string(out), "clusterctl-release v1.2.3-rc.1 (clusterctl v1.") {
		t.Errorf("the program prints %q, %v", out, err)
	}
}

// requireBill fails the test unless a bill of materials has the modules that go.mod requires.
func requireBill(t *testing.T, data []byte) {
	t.Helper()
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "pkg:golang/{{.Path}}@{{.Version}}", "sigs.k8s.io/cluster-api", "k8s.io/apimachinery")
	list.Dir = pinned.Root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]bool{}
	for _, part := range *bom.Components {
		urls[part.PackageURL] = true
	}
	for _, url := range append(strings.Fields(string(out)), "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go")) {
		if !urls[url] {
			t.Errorf("the bill of materials lacks %s", url)
		}
	}
	if main := bom.Metadata.Component; main.Version != "v1.2.3-rc.1" || main.Name != program.Module {
		t.Errorf("the bill of materials is for %+v", main)
	}
}

// requirePackage fails the test unless dpkg accepts a package with its files in the right folders.
func requirePackage(t *testing.T, file string) {
	t.Helper()
	prerequisite.Program(t, "dpkg-deb")
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--field", file}, []string{"Package: clusterctl-release\nVersion: 1.2.3~rc.1\n", "Architecture: " + runtime.GOARCH}},
		{[]string{"--contents", file}, []string{
			"-rwxr-xr-x 0/0", " usr/bin/clusterctl-release\n", " usr/share/man/man1/clusterctl-release-build.1\n",
			" usr/share/bash-completion/completions/clusterctl-release\n", " usr/share/doc/clusterctl-release/licenses/go/LICENSE\n",
		}},
	} {
		out, err := exec.CommandContext(t.Context(), "dpkg-deb", tc.args...).CombinedOutput()
		if err != nil {
			t.Errorf("dpkg-deb %s: %v: %s", tc.args[0], err, out)
		}
		for _, text := range tc.want {
			if !bytes.Contains(out, []byte(text)) {
				t.Errorf("dpkg-deb %s does not print %q", tc.args[0], text)
			}
		}
	}
}

// TestDebianPackageInstalls checks that dpkg can install a package, which needs entries for folders before their files.
func TestDebianPackageInstalls(t *testing.T) {
	prerequisite.Program(t, "dpkg")
	d := distribution{version: "v1.2.3-rc.1", modified: time.Unix(1700000000, 0).UTC()}
	data, err := d.debianPackage(program.Platform{OS: "linux", Architecture: runtime.GOARCH}, []program.File{
		{Path: name, Mode: 0o755, Data: []byte("program")}, {Path: "licenses/go/LICENSE", Mode: 0o644, Data: []byte("text")},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"x.deb": string(data)})
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--extract", filepath.Join(dir, "x.deb"), filepath.Join(dir, "root")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	treetest.Write(t, dir, map[string]string{"admin/status": "", "admin/updates/.keep": "", "admin/info/.keep": ""})
	install := exec.CommandContext(t.Context(), "dpkg", "--force-not-root", "--force-bad-path", "--admindir="+filepath.Join(dir, "admin"), "--instdir="+filepath.Join(dir, "instance"), "--install", filepath.Join(dir, "x.deb"))
	if err := os.MkdirAll(filepath.Join(dir, "instance"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("dpkg --install: %v: %s", err, out)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "instance/usr/share/doc/clusterctl-release/licenses/go/LICENSE")); err != nil || string(text) != "text" {
		t.Errorf("the licence is %q, %v", text, err)
	}
}

// TestZip checks that the archive for Windows can be read and has the bytes of the program.
func TestZip(t *testing.T) {
	d := distribution{modified: time.Unix(1700000000, 0).UTC()}
	data, err := d.zipped([]program.File{{Path: "a/b.exe", Mode: 0o755, Data: []byte("program")}})
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	f, err := archive.Open("a/b.exe")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != "program" {
		t.Errorf("the archive has %q, %v", text, err)
	}
}

// TestSigningNeedsCommit checks that nothing is written if a signature is requested for a tree with changes.
func TestSigningNeedsCommit(t *testing.T) {
	private, public := keyPair(t)
	for _, tc := range []struct{ commit, key, want string }{
		{commit + "-dirty", private, "commit its changes first"},
		{"", private, "commit its changes first"},
		{commit, public, "PRIVATE KEY"},
	} {
		folder := filepath.Join(t.TempDir(), "dist")
		d := distribution{root: pinned.Root(t), version: "v1.2.3", commit: tc.commit, keyFile: tc.key}
		if err := d.make(t.Context(), []string{"linux/amd64"}, folder); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("commit %q: %v, want %q", tc.commit, err, tc.want)
		}
		if _, err := os.Stat(folder); err == nil {
			t.Errorf("commit %q: files were written", tc.commit)
		}
	}
}
