package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/mod/modfile"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// kubeadmImages is the output of `kubeadm config images list --kubernetes-version` by version.
var kubeadmImages = map[string]string{
	"v1.35.4": `registry.k8s.io/kube-apiserver:v1.35.4
registry.k8s.io/kube-controller-manager:v1.35.4
registry.k8s.io/kube-scheduler:v1.35.4
registry.k8s.io/kube-proxy:v1.35.4
registry.k8s.io/coredns/coredns:v1.13.1
registry.k8s.io/pause:3.10.1
registry.k8s.io/etcd:3.6.6-0`,
	"v1.36.3": `registry.k8s.io/kube-apiserver:v1.36.3
registry.k8s.io/kube-controller-manager:v1.36.3
registry.k8s.io/kube-scheduler:v1.36.3
registry.k8s.io/kube-proxy:v1.36.3
registry.k8s.io/coredns/coredns:v1.14.2
registry.k8s.io/pause:3.10.2
registry.k8s.io/etcd:3.6.8-0`,
}

// emptyTree returns a tree with the files that packetFilters needs. All are links to one static program.
func emptyTree(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	// A static program needs no libraries.
	static := pinned.Tool(t, "etcd")
	for _, path := range []string{"usr/sbin/nft", "usr/sbin/keepalived", "usr/sbin/xtables-nft-multi", libraries + "/xtables/libxt_mark.so"} {
		path = filepath.Join(tree, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(static, path)); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// TestContainerOf checks that each image that kubeadm requires, and each other one, has a recipe with built programs.
func TestContainerOf(t *testing.T) {
	tree := emptyTree(t)
	versions := slices.Sorted(maps.Keys(kubeadmImages))
	if pinned, err := pinnedVersions(pinned.Root(t)); err != nil || !slices.Equal(pinned, versions) {
		t.Fatalf("hack/tools pins %v (%v), and this test is about %v", pinned, err, versions)
	}
	for version, list := range kubeadmImages {
		proxies := map[string]string{}
		programs := map[string]string{}
		for _, program := range programsOf(version, versions) {
			programs[strings.TrimPrefix(program, kubernetes(version)+"/")] = "/built/" + program
		}
		for _, reference := range references(list, programs) {
			ref, err := name.NewTag(reference)
			if err != nil {
				t.Fatal(err)
			}
			recipe, err := containerOf(ref, programs, "/work", tree)
			if err != nil {
				t.Error(err)
			}
			for target, source := range recipe.files {
				if source == "" {
					t.Errorf("%s has %s of a program that isn't built", ref, target)
				}
			}
			if proxy := recipe.files["usr/local/bin/kube-proxy"]; proxy != "" {
				proxies[ref.TagStr()] = proxy
			}
			if recipe.entrypoint != "" && recipe.files[strings.TrimPrefix(recipe.entrypoint, "/")] == "" {
				t.Errorf("%s starts %s, which it doesn't have", ref, recipe.entrypoint)
			}
		}
		// Nodes of both versions run the kube-proxy of an upgrade's DaemonSet.
		want := map[string]string{"v1.35.4": "/built/kubernetes-v1.35.4/kube-proxy", "v1.36.3": "/built/kubernetes-v1.36.3/kube-proxy"}
		if !maps.Equal(proxies, want) {
			t.Errorf("nodes of %s have kube-proxy %v, want %v", version, proxies, want)
		}
	}
	unknown, err := name.NewTag("registry.k8s.io/kube-something:v1.40.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := containerOf(unknown, nil, "", ""); err == nil || !strings.Contains(err.Error(), "registry.k8s.io/kube-something:v1.40.0") {
		t.Errorf("an unknown image: %v", err)
	}
}

// TestManifest checks that the manifest of flannel has the image of the built version, which nodes have.
func TestManifest(t *testing.T) {
	manifest, err := os.ReadFile("flannel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	module := readModule(t, filepath.Join(pinned.Root(t), "hack", "tools", "flannel", "go.mod"))
	image := "localhost/flannel:" + module.Require[0].Mod.Version
	if !slices.Contains(others, image) || !strings.Contains(string(manifest), "image: "+image+"\n") {
		t.Errorf("nodes have %v, want %s there and in the manifest:\n%s", others, image, manifest)
	}
}

// TestKubeProxy checks that the image of kube-proxy has the programs that it calls, and their dynamic linker.
func TestKubeProxy(t *testing.T) {
	files, err := packetFilters(emptyTree(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"usr/sbin/nft", "usr/sbin/iptables", "usr/sbin/iptables-save", "usr/sbin/iptables-restore",
		"usr/sbin/ip6tables", "usr/sbin/ip6tables-save", "usr/sbin/ip6tables-restore", libraries + "/xtables/libxt_mark.so", loader,
	} {
		if files[want] == "" {
			t.Errorf("%s is missing", want)
		}
	}
	tree := t.TempDir()
	if _, err := packetFilters(tree); err == nil || !strings.Contains(err.Error(), filepath.Join(tree, "usr/sbin")) {
		t.Errorf("a tree without them: %v", err)
	}
}

// TestBuild builds an image twice and checks its content.
func TestBuild(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	recipe := container{files: map[string]string{"usr/local/bin/demo": source}, entrypoint: "/usr/local/bin/demo"}
	image, err := recipe.build()
	if err != nil {
		t.Fatal(err)
	}
	again, err := recipe.build()
	if err != nil {
		t.Fatal(err)
	}
	digest, firstErr := image.Digest()
	same, secondErr := again.Digest()
	if err := errors.Join(firstErr, secondErr); err != nil || digest != same {
		t.Errorf("two builds have the digests %s and %s: %v", digest, same, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "amd64" || config.OS != "linux" || !slices.Equal(config.Config.Entrypoint, []string{recipe.entrypoint}) || !strings.Contains(config.Config.Env[0], "/usr/local/bin") {
		t.Errorf("the configuration is %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has %d layers: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
	}
	if want := map[string]int64{"tmp/": 0o1777, "usr/": 0o755, "usr/local/": 0o755, "usr/local/bin/": 0o755, "usr/local/bin/demo": 0o755}; !maps.Equal(modes, want) {
		t.Errorf("the layer has %v", modes)
	}
}

// TestPins checks that one module has all programs of each version of Kubernetes, stamped with this version.
func TestPins(t *testing.T) {
	tools := filepath.Join(pinned.Root(t), "hack", "tools")
	for version := range kubeadmImages {
		for _, program := range programsOf(version, slices.Collect(maps.Keys(kubeadmImages))) {
			folder, tool, _ := strings.Cut(program, "/")
			module := readModule(t, filepath.Join(tools, folder, "go.mod"))
			if !slices.ContainsFunc(module.Tool, func(pinned *modfile.Tool) bool { return strings.HasSuffix(pinned.Path, tool) }) {
				t.Errorf("%s has no tool %s", folder, tool)
			}
		}
		module := readModule(t, filepath.Join(tools, kubernetes(version), "go.mod"))
		staging := "v0" + strings.TrimPrefix(version, "v1")
		for _, replace := range module.Replace {
			if replace.New.Version != staging {
				t.Errorf("Kubernetes %s has %s %s", version, replace.New.Path, replace.New.Version)
			}
		}
		stamp, err := os.ReadFile(filepath.Join(tools, kubernetes(version), "ldflags"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(stamp), "version.gitVersion="+version+"\n") || !strings.Contains(string(stamp), "version.gitMinor="+strings.Split(version, ".")[1]+"\n") {
			t.Errorf("the stamp of %s is %s", version, stamp)
		}
	}
}

func readModule(t *testing.T, path string) *modfile.File {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	module, err := modfile.Parse(path, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestKey checks that the key of an image depends on the versions of its programs.
func TestKey(t *testing.T) {
	first, firstErr := keyOf(map[string]string{"kubelet": "/tools/kubelet-1/kubelet"})
	same, sameErr := keyOf(map[string]string{"kubelet": "/elsewhere/kubelet-1/kubelet"})
	other, otherErr := keyOf(map[string]string{"kubelet": "/tools/kubelet-2/kubelet"})
	if err := errors.Join(firstErr, sameErr, otherErr); err != nil || first != same || first == other {
		t.Errorf("the keys are %s, %s and %s: %v", first, same, other, err)
	}
}

// TestStartedUnits checks that the units that a node starts exist.
func TestStartedUnits(t *testing.T) {
	for path, target := range links {
		if !strings.Contains(path, ".wants/") {
			continue
		}
		if _, err := files.ReadFile("files" + target); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
