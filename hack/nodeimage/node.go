package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// suite is the release of Debian, and packages are a node's packages in addition to the essential ones.
const suite = "bookworm"

var packages = []string{
	"systemd-sysv", "systemd-resolved", "udev", "dbus", "kmod", "linux-image-cloud-amd64", "initramfs-tools", "systemd-boot-efi",
	"cloud-init", "cloud-guest-utils", "fdisk", "e2fsprogs", "netplan.io", "openssh-server", "sudo", "qemu-guest-agent",
	"ca-certificates", "iproute2", "iptables", "nftables", "conntrack", "ethtool", "libseccomp2",
	"procps", "less", "iputils-ping", "curl",
	"keepalived", // for a container image: it isn't started on the node
}

// links are symbolic links of a node: for enabled and disabled services.
var links = map[string]string{
	"etc/systemd/system/multi-user.target.wants/containerd.service": "/etc/systemd/system/containerd.service",
	"etc/systemd/system/multi-user.target.wants/kubelet.service":    "/etc/systemd/system/kubelet.service",
	"etc/resolv.conf": "/run/systemd/resolve/stub-resolv.conf",
	// A node is replaced, not upgraded.
	"etc/systemd/system/apt-daily.timer":         "/dev/null",
	"etc/systemd/system/apt-daily-upgrade.timer": "/dev/null",
	"etc/systemd/system/dpkg-db-backup.timer":    "/dev/null",
}

// builder builds one image.
type builder struct {
	// version is the version of Kubernetes.
	version string
	// programs are the paths of programs by their names.
	programs map[string]string
	// work is a folder for intermediate files, and tree the folder in it that becomes the node's file system.
	work, tree string
	// pauseImage is the reference of the image that kubeadm requests.
	pauseImage string
}

func (b *builder) containers() string { return filepath.Join(b.work, "containers.tar") }
func (b *builder) disk() string       { return filepath.Join(b.work, "disk.qcow2") }

// installDebian creates the tree.
func (b *builder) installDebian(ctx context.Context) error {
	args := []string{"--mode=root", "--variant=minbase", "--architectures=amd64", "--format=directory", "--include=" + strings.Join(packages, ",")}
	for _, folder := range []string{"doc", "man", "locale", "info"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+folder+"/*")
	}
	args = append(args, "--dpkgopt=path-include=/usr/share/doc/*/copyright", `--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`)
	_, err := command(ctx, "mmdebstrap", append(args, suite, b.tree)...)
	return err
}

// installNode adds the files from modules and from this folder to the tree.
func (b *builder) installNode(context.Context) error {
	for name, target := range nodePrograms {
		content, err := os.ReadFile(b.programs[name])
		if err != nil {
			return err
		}
		if err := b.write(target, content, 0o755); err != nil {
			return err
		}
	}
	err := fs.WalkDir(files, "files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return b.write(strings.TrimPrefix(path, "files/"), bytes.ReplaceAll(content, []byte("PAUSE_IMAGE"), []byte(b.pauseImage)), 0o644)
	})
	if err != nil {
		return err
	}
	for path, target := range links {
		path = filepath.Join(b.tree, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(target, path)); err != nil {
			return err
		}
	}
	// Each machine generates its own keys, and the kernel is on another partition.
	for _, pattern := range []string{"etc/ssh/ssh_host_*", "vmlinuz*", "initrd.img*"} {
		paths, globErr := filepath.Glob(filepath.Join(b.tree, pattern))
		err = errors.Join(err, globErr)
		for _, path := range paths {
			err = errors.Join(err, os.Remove(path))
		}
	}
	// Each machine generates its own ID: systemd treats an empty file as a missing one. cloud-init sets the name.
	return errors.Join(err, b.write("etc/machine-id", nil, 0o444), b.write("etc/hostname", []byte("node\n"), 0o644), os.RemoveAll(filepath.Join(b.tree, "var/lib/dbus/machine-id")), os.MkdirAll(filepath.Join(b.tree, "etc/kubernetes/manifests"), 0o755))
}

func (b *builder) write(path string, content []byte, mode os.FileMode) error {
	path = filepath.Join(b.tree, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// importContainers imports the container images with containerd into its folder in the tree, so that a node doesn't
// have to import them when it starts. Its mounts are in a separate namespace.
func (b *builder) importContainers(ctx context.Context) (err error) {
	config := filepath.Join(b.work, "containerd.toml")
	socket := filepath.Join(b.work, "containerd.sock")
	text := fmt.Sprintf("version = 3\nroot = %q\nstate = %q\ndisabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.nri.v1.nri']\n[grpc]\naddress = %q\n[ttrpc]\naddress = %q\n",
		filepath.Join(b.tree, "var/lib/containerd"), filepath.Join(b.work, "state"), socket, socket+".ttrpc")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	daemon := exec.CommandContext(ctx, b.programs["containerd/containerd"], "--config", config)
	daemon.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	var log bytes.Buffer
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		return err
	}
	defer func() {
		_ = daemon.Cancel() // it may have ended
		if ended := daemon.Wait(); err == nil && ended != nil {
			err = fmt.Errorf("containerd: %w\n%s", ended, log.String())
		}
	}()
	ctr := func(args ...string) error {
		_, err := command(ctx, b.programs["containerd/ctr"], append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
		return err
	}
	for range 60 {
		if err = ctr("version"); err == nil {
			break
		}
		time.Sleep(time.Second)
	}
	if err == nil {
		err = ctr("images", "import", b.containers())
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	return nil
}
