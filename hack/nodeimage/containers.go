package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
)

// container describes the content of a container image.
type container struct {
	// files has paths on this machine, by their paths in the image.
	files map[string]string
	// entrypoint is the path of the program that starts if the pod names no command.
	entrypoint string
}

// The paths of programs that are compiled for an image, in the folder of the build: one keeps a pod's namespaces, and
// one keeps the address of the API server on a machine.
const (
	pause    = "pause"
	endpoint = "endpoint"
)

// others are the images that kubeadm doesn't request: the network of pods, and the replacement of kube-vip.
var others = []string{"localhost/flannel:v0.28.10", "localhost/endpoint:v1"}

// containerOf returns the content of the image with a reference. programs are the paths of programs by their names.
func containerOf(ref name.Tag, programs map[string]string, work, tree string) (container, error) {
	switch base := path.Base(ref.RepositoryStr()); base {
	case "kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd":
		return container{files: map[string]string{"usr/local/bin/" + base: programs[base]}}, nil
	case "coredns":
		return container{files: map[string]string{"coredns": programs[base]}, entrypoint: "/coredns"}, nil
	case "pause":
		return container{files: map[string]string{"pause": filepath.Join(work, pause)}, entrypoint: "/pause"}, nil
	case kubeProxy:
		files, err := packetFilters(tree)
		if err != nil {
			return container{}, err
		}
		files["usr/local/bin/kube-proxy"] = cmp.Or(programs[kubernetes(ref.TagStr())+"/"+base], programs[base])
		return container{files: files}, nil
	case "flannel":
		files, err := packetFilters(tree)
		if err != nil {
			return container{}, err
		}
		files["flannel"] = programs[base]
		return container{files: files, entrypoint: "/flannel"}, nil
	case "endpoint":
		const keepalived = "usr/sbin/keepalived"
		files := map[string]string{"endpoint": filepath.Join(work, endpoint), keepalived: filepath.Join(tree, keepalived), loader: filepath.Join(tree, libraries, path.Base(loader))}
		for _, names := range []string{"etc/passwd", "etc/group"} { // keepalived looks for the user of its script
			files[names] = filepath.Join(tree, names)
		}
		return container{files: files, entrypoint: "/endpoint"}, addLibraries(files, tree, files[keepalived])
	}
	return container{}, fmt.Errorf("there is no recipe for the image %s, which nodes need: add one to containerOf", ref)
}

// packetFilters are the programs that kube-proxy calls, with their libraries, from a tree with Debian.
func packetFilters(tree string) (map[string]string, error) {
	const multi = "usr/sbin/xtables-nft-multi"
	files := map[string]string{"usr/sbin/nft": filepath.Join(tree, "usr/sbin/nft")}
	for _, protocol := range []string{"iptables", "ip6tables"} {
		for _, does := range []string{"", "-save", "-restore"} {
			files["usr/sbin/"+protocol+does] = filepath.Join(tree, multi) // the program's name selects its function
		}
	}
	extensions, err := filepath.Glob(filepath.Join(tree, libraries, "xtables", "*.so"))
	if err != nil {
		return nil, err
	}
	for _, extension := range extensions {
		files[libraries+"/xtables/"+filepath.Base(extension)] = extension
	}
	files[loader] = filepath.Join(tree, libraries, path.Base(loader))
	for _, start := range append(extensions, filepath.Join(tree, multi), filepath.Join(tree, "usr/sbin/nft")) {
		if err := addLibraries(files, tree, start); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// The folder of Debian's libraries on amd64, and the path of the dynamic linker.
const (
	libraries = "usr/lib/x86_64-linux-gnu"
	loader    = "lib64/ld-linux-x86-64.so.2"
)

// addLibraries adds the libraries that a program needs to files.
func addLibraries(files map[string]string, tree, program string) error {
	binary, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("reading what %s is linked with: %w", program, err)
	}
	names, err := binary.ImportedLibraries()
	if err := errors.Join(err, binary.Close()); err != nil {
		return err
	}
	for _, name := range names {
		target := libraries + "/" + name
		if _, added := files[target]; added {
			continue
		}
		files[target] = filepath.Join(tree, target)
		if err := addLibraries(files, tree, files[target]); err != nil {
			return err
		}
	}
	return nil
}

// references returns the references of all images: those of kubeadm's list, the others, and kube-proxy of the other
// versions among the programs.
func references(list string, programs map[string]string) []string {
	all := append(strings.Fields(list), others...)
	for name := range programs {
		if module, isOther := strings.CutSuffix(name, "/"+kubeProxy); isOther {
			all = append(all, "registry.k8s.io/kube-proxy:"+strings.TrimPrefix(module, kubernetes("")))
		}
	}
	return all
}

// buildContainers writes the container images that kubeadm requests to one archive.
func (b *builder) buildContainers(ctx context.Context) error {
	list, err := command(ctx, b.programs["kubeadm"], "config", "images", "list", "--kubernetes-version", b.version)
	if err != nil {
		return err
	}
	if err := b.compilePause(ctx); err != nil {
		return err
	}
	if err := b.compileEndpoint(ctx); err != nil {
		return err
	}
	images := map[name.Tag]v1.Image{}
	for _, reference := range references(list, b.programs) {
		ref, err := name.NewTag(reference)
		if err != nil {
			return fmt.Errorf("reading kubeadm's list of images: %w", err)
		}
		if path.Base(ref.RepositoryStr()) == "pause" {
			b.pauseImage = ref.Name()
		}
		container, err := containerOf(ref, b.programs, b.work, b.tree)
		if err != nil {
			return err
		}
		if images[ref], err = container.build(); err != nil {
			return fmt.Errorf("making the image %s: %w", ref, err)
		}
	}
	return tarball.MultiWriteToFile(b.containers(), images)
}

// compilePause compiles the pause program from Kubernetes' source.
func (b *builder) compilePause(ctx context.Context) error {
	root, err := pinned.FindRoot()
	if err != nil {
		return err
	}
	sources, err := command(ctx, "go", "-C", filepath.Join(root, "hack", "tools", kubernetes(b.version)), "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	_, err = command(ctx, "gcc", "-Os", "-static", "-s", "-DVERSION="+b.version, "-o", filepath.Join(b.work, pause), filepath.Join(sources, "build/pause/linux/pause.c"))
	return err
}

// compileEndpoint compiles the program that keeps the address of the API server on a machine.
func (b *builder) compileEndpoint(ctx context.Context) error {
	root, err := pinned.FindRoot()
	if err != nil {
		return err
	}
	return program.Program{Package: "./hack/nodeimage/endpoint"}.Compile(ctx, root, program.Platform{OS: "linux", Architecture: "amd64"}, filepath.Join(b.work, endpoint))
}

// build returns the image with one layer.
func (c container) build() (v1.Image, error) {
	content := []program.File{{Path: "tmp/", Mode: 0o1777}}
	for target, source := range c.files {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		content = append(content, program.File{Path: target, Mode: 0o755, Data: data})
	}
	var archive bytes.Buffer
	if err := program.WriteTar(&archive, content, time.Unix(0, 0)); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config = v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/"}
	if c.entrypoint != "" {
		config.Config.Entrypoint = []string{c.entrypoint}
	}
	return mutate.ConfigFile(image, config)
}
