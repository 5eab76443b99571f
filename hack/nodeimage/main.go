// Command nodeimage builds a disk image of a Kubernetes node, a qcow2: Debian with cloud-init, containerd, kubelet and
// kubeadm, and the container images that kubeadm requires. It needs no container engine. docs/how-to/node-image.md is
// for its users.
package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
)

// format counts changes of the recipe that its other inputs don't contain.
const format = "2"

// files has the node's files that are in no package and no module, by their paths on the node, and the source of a
// program in a container image.
//
//go:embed all:files endpoint/main.go
var files embed.FS

func main() {
	version := flag.String("kubernetes", "v1.36.3", "version of Kubernetes, which a module in hack/tools pins")
	again := flag.Bool("again", false, "make the image again, with Debian's newest packages, also where it is in the cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	image, err := run(ctx, *version, *again)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodeimage:", err)
		os.Exit(1)
	}
	fmt.Println(image)
}

// run returns the path of the image, and builds it if it isn't in the cache.
func run(ctx context.Context, version string, again bool) (_ string, err error) {
	root, err := pinned.FindRoot()
	if err != nil {
		return "", err
	}
	versions, err := pinnedVersions(root)
	if err != nil {
		return "", err
	}
	if !slices.Contains(versions, version) {
		return "", fmt.Errorf("no module in hack/tools pins Kubernetes %q, only %s", version, strings.Join(versions, ", "))
	}
	if err := prepare(ctx, root); err != nil {
		return "", err
	}
	const stepsAfterPrograms = 5
	programs := programsOf(version, versions)
	progress := &testbed.Progress{Out: os.Stderr, Steps: len(programs) + stepsAfterPrograms}
	paths := map[string]string{}
	for _, name := range programs {
		if err := progress.Do(name, func() (err error) {
			paths[strings.TrimPrefix(name, kubernetes(version)+"/")], err = pinned.FindTool(ctx, name)
			return err
		}); err != nil {
			return "", err
		}
	}
	cache, err := pinned.Cache()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "node-images")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	key, err := keyOf(paths)
	if err != nil {
		return "", err
	}
	image := filepath.Join(cache, fmt.Sprintf("node-%s-%s.qcow2", version, key))
	if _, err := os.Stat(image); err == nil && !again {
		return image, nil
	}
	work, err := os.MkdirTemp(cache, "work-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &builder{version: version, programs: paths, work: work, tree: filepath.Join(work, "tree")}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"Debian's packages", b.installDebian},
		{"the container images", b.buildContainers},
		{"the node's files", b.installNode},
		{"containerd's store", b.importContainers},
		{"the disk", b.writeDisk},
	} {
		if err := progress.Do(step.what, func() error { return step.do(ctx) }); err != nil {
			return "", fmt.Errorf("making %s: %w", step.what, err)
		}
	}
	return image, os.Rename(b.disk(), image)
}

// prepare installs the packages that this machine lacks. An error names what else is missing. root is the folder of the
// project.
func prepare(ctx context.Context, root string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("the image is made on linux/amd64, and this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("making the image needs root, for mmdebstrap and containerd")
	}
	var missing []string
	for _, need := range []struct{ program, pkg string }{
		{"mmdebstrap", "mmdebstrap"}, {"mke2fs", "e2fsprogs"}, {"sfdisk", "fdisk"}, {"mformat", "mtools"}, {"qemu-img", "qemu-utils"}, {"gcc", "gcc libc6-dev"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			missing = append(missing, need.pkg)
		}
	}
	if _, err := os.Stat("/usr/include/seccomp.h"); err != nil { // runc is built with it
		missing = append(missing, "libseccomp-dev")
	}
	if len(missing) == 0 {
		return nil
	}
	install := exec.CommandContext(ctx, filepath.Join(root, "hack", "tools", "packages"), strings.Fields(strings.Join(missing, " "))...)
	install.Stderr = os.Stderr
	if err := install.Run(); err != nil {
		return fmt.Errorf("installing Debian's packages %s: %w", strings.Join(missing, " "), err)
	}
	return nil
}

// keyOf returns a different key for each set of inputs that the project pins. Debian's packages are the newest at the
// time of the build.
func keyOf(programs map[string]string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, format, suite, packages, kernelOptions)
	var paths []string
	for _, path := range programs {
		paths = append(paths, filepath.Base(filepath.Dir(path))) // the folder's name has the key of the program's inputs
	}
	slices.Sort(paths)
	fmt.Fprintln(hash, paths)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		fmt.Fprintf(hash, "%s %d\n%s", path, len(content), content)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)[:8]), err
}

// command runs a program and returns its output. The error contains the program's error output.
func command(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	// The times of files don't depend on the time of the build.
	c.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000", "TZ=UTC", "MTOOLS_SKIP_CHECK=1")
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
