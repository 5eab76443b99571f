package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/clusterctl-release/clusterctl-release/internal/image"
	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/program"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/repository"
)

// preparedVariable passes the prepared files to the program in the sandbox.
const preparedVariable = "TESTBED_PREPARED"

// guestVariable has the path of the guest image, balancerVariable that of the load balancers' image, signedVariable
// that of the image with signatures, and oldNodeVariable that of nodes before an upgrade.
const (
	guestVariable    = "TESTBED_GUEST_IMAGE"
	balancerVariable = "TESTBED_BALANCER_IMAGE"
	signedVariable   = "TESTBED_SIGNED_IMAGE"
	oldNodeVariable  = "TESTBED_OLD_NODE_IMAGE"
)

// prepared has the files that are built outside of the sandbox, which has no network.
type prepared struct {
	// Tools are the paths of pinned tools by their names.
	Tools map[string]string
	// Sources of the providers' modules, by their paths.
	Sources map[string]repository.Source
	// Release is the output folder of `make release`.
	Release string
	// Manager is the path of the provider's manager.
	Manager string
}

// The names of the control plane's programs in hack/tools/tool.
const (
	Etcd              = "etcd"
	APIServer         = "kubernetes-v1.36.3/kube-apiserver"
	ControllerManager = "kubernetes-v1.36.3/kube-controller-manager"
)

// tools are the programs of a testbed, by their names in hack/tools/tool.
var tools = []string{
	Etcd, APIServer, ControllerManager, "kustomize", "clusterctl",
	"clusterctl/core", "clusterctl/bootstrap/kubeadm", "clusterctl/controlplane/kubeadm", "ipam-in-cluster",
}

// modules has the project's folders that pin the versions of the providers' modules.
var modules = map[string]string{repository.ClusterAPI: ".", repository.IPAMInCluster: "hack/tools/ipam-in-cluster"}

// ToolCount returns the number of tools. Each is a step of the progress.
func ToolCount() int { return len(tools) }

// Tools returns the paths of the pinned tools by their names. It builds those that aren't in the cache.
func Tools(ctx context.Context, progress *Progress) (map[string]string, error) {
	paths := map[string]string{}
	for _, name := range tools {
		if err := progress.Do(name, func() (err error) {
			paths[name], err = pinned.FindTool(ctx, name)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// Prepare builds the parts of a testbed: the pinned tools that aren't in the cache, the provider's release and its
// manager. It is for sandbox.Main, outside of the sandbox.
func Prepare() error {
	ctx := context.Background()
	var p prepared
	var err error
	if p.Tools, err = Tools(ctx, &Progress{}); err != nil {
		return err
	}
	root, err := pinned.FindRoot()
	if err != nil {
		return err
	}
	if p.Sources, err = sources(ctx, root); err != nil {
		return err
	}
	if runFolder, err = buildFolder(); err != nil {
		return err
	}
	p.Release, p.Manager = filepath.Join(runFolder, "out"), filepath.Join(runFolder, "manager")
	// Pods run processes on this machine: only the program of an image is started, without the rest of the image.
	platform := program.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	if _, err := run(ctx, root, "make", "--no-print-directory", "release", "OUT="+p.Release, "IMAGE_PLATFORMS="+platform.String()); err != nil {
		return err
	}
	if err := image.Extract(p.layout(), platform, p.Manager); err != nil {
		return err
	}
	content, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return os.Setenv(preparedVariable, string(content))
}

// sources returns the sources of the providers' modules, and downloads those that aren't in the module cache.
func sources(ctx context.Context, root string) (map[string]repository.Source, error) {
	byModule := map[string]repository.Source{}
	for module, folder := range modules {
		out, err := run(ctx, filepath.Join(root, folder), "go", "mod", "download", "-json", module)
		if err != nil {
			return nil, err
		}
		var source repository.Source
		if err := json.Unmarshal([]byte(out), &source); err != nil {
			return nil, fmt.Errorf("finding the sources of %s: %w", module, err)
		}
		byModule[module] = source
	}
	return byModule, nil
}

// load reads the result of Prepare.
func load() (prepared, error) {
	var p prepared
	if err := json.Unmarshal([]byte(os.Getenv(preparedVariable)), &p); err != nil {
		return p, fmt.Errorf("reading what was prepared for the testbed: %w: the program must start with sandbox.Main and testbed.Prepare", err)
	}
	return p, NoteSources()
}

// NoteSources opens every folder that Prepare builds from. `go test` reuses a cached result unless a file that the test
// opened has changed, and it doesn't see what Prepare opens.
func NoteSources() error {
	root, err := pinned.FindRoot()
	if err != nil {
		return err
	}
	for _, part := range []string{"cmd", "pkg", "provider", "hack/image", "hack/nodeimage", "hack/tools", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				_, err = os.ReadDir(path)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("reading the sources: %w", err)
		}
	}
	return nil
}

func run(ctx context.Context, dir, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", program, strings.Join(args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// runFolder is the folder with the files that this process has built, after Prepare.
var runFolder string

// buildFolder creates a folder for this run next to the cache of tools. A lock marks it as used until the process ends.
// buildFolder also removes unlocked folders: a killed run can't clean up after itself.
func buildFolder() (string, error) {
	parent, err := cacheFolder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(parent, "run-*"))
	if err != nil {
		return "", err
	}
	for _, folder := range old {
		if lock, err := lockFolder(folder); err == nil {
			err = errors.Join(returnHugepages(folder), os.RemoveAll(folder))
			_ = lock.Close()
			if err != nil {
				return "", err
			}
		}
	}
	folder, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return "", err
	}
	lock, err := lockFolder(folder)
	if err != nil {
		return "", err
	}
	runLocks = append(runLocks, lock)
	return folder, nil
}

// cacheFolder returns the folder next to the cache of tools.
func cacheFolder() (string, error) {
	cache, err := pinned.Cache()
	return filepath.Join(cache, "testbed"), err
}

// PrepareGuest builds the guest image unless it is in the cache. It is for sandbox.Main, outside of the sandbox.
func PrepareGuest() error { return prepareImage(guest.Image, guestVariable) }

// PrepareNode is PrepareGuest for the image of a real node with a version of Kubernetes. Building one takes half an
// hour, with the progress on stderr.
func PrepareNode(version string) error { return prepareImage(nodeImage(version), guestVariable) }

// PrepareOldNode is PrepareNode for the nodes of clusters that are upgraded to PrepareNode's version.
func PrepareOldNode(version string) error { return prepareImage(nodeImage(version), oldNodeVariable) }

func nodeImage(version string) func(ctx context.Context, project, cache string) (string, error) {
	return func(ctx context.Context, project, _ string) (string, error) {
		command := exec.CommandContext(ctx, "go", "run", "./hack/nodeimage", "-kubernetes", version)
		command.Dir, command.Stderr = project, os.Stderr
		out, err := command.Output()
		if err != nil {
			return "", fmt.Errorf("building the image of a node: %w", err)
		}
		return strings.TrimSpace(string(out)), nil
	}
}

// PrepareBalancer is PrepareGuest for the image of load balancers.
func PrepareBalancer() error { return prepareImage(guest.BalancerImage, balancerVariable) }

// PrepareSigned is PrepareGuest for the image that starts with secure boot on.
func PrepareSigned() error { return prepareImage(guest.SignedImage, signedVariable) }

func prepareImage(build func(ctx context.Context, project, cache string) (string, error), variable string) error {
	root, err := pinned.FindRoot()
	if err != nil {
		return err
	}
	cache, err := cacheFolder()
	if err != nil {
		return err
	}
	image, err := build(context.Background(), root, cache)
	if err != nil {
		return err
	}
	return os.Setenv(variable, image)
}

// GuestImage returns the path of the guest image in qcow2, after PrepareGuest.
func GuestImage() string {
	return os.Getenv(guestVariable)
}

// BalancerImage returns the path of the load balancers' image after PrepareBalancer, or "".
func BalancerImage() string {
	return os.Getenv(balancerVariable)
}

// SignedImage returns the path of the image with signatures after PrepareSigned, or "".
func SignedImage() string {
	return os.Getenv(signedVariable)
}

// oldNodeImage returns the path of the image of nodes before an upgrade after PrepareOldNode, or "".
func oldNodeImage() string { return os.Getenv(oldNodeVariable) }

// runLocks keeps the locks of runs from being garbage collected, which would release them.
var runLocks []*os.File

func lockFolder(folder string) (*os.File, error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking %s: %w", folder, err)
	}
	return file, nil
}
