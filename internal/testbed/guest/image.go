// Package guest makes the images of tiny guests: Debian's kernel for clouds, and an initramfs with one
// program. They are started by UEFI from a disk, as any other image, and are up in seconds without
// hardware virtualization.
package guest

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// modules are the drivers that a guest needs. What they depend on comes along.
var modules = []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "isofs", "button", "evdev", "qemu_fw_cfg"}

// format counts changes of what is made, so that a cache has no image of the older kind.
const format = "2"

// Image returns the path of the guest's image, a qcow2, in a folder for it, where it is made once. It
// is made of Debian's packages of the kernel and of systemd-boot, which apt-get downloads, and of the
// program that go builds in the folder of this project.
func Image(ctx context.Context, project, cache string) (string, error) {
	return image(ctx, project, cache, addition{name: "guest", size: 48 << 20})
}

// image makes an image with an addition.
func image(ctx context.Context, project, cache string, more addition) (_ string, err error) {
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("the testbed's guest is for amd64, and this is %s", runtime.GOARCH)
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "guest-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	program := filepath.Join(work, "init")
	if err := buildProgram(ctx, project, program); err != nil {
		return "", err
	}
	kernel, loader, err := packages(ctx)
	if err != nil {
		return "", fmt.Errorf("looking for the guest's kernel: %w", err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	added, err := more.sum()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(content, "%s %s %s %s", format, kernel, loader, added))
	image := filepath.Join(cache, more.name+"-"+hex.EncodeToString(sum[:8])+".qcow2")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	made, err := build(ctx, work, kernel, loader, more)
	if err != nil {
		return "", fmt.Errorf("making the guest's image: %w", err)
	}
	return image, os.Rename(made, image)
}

func buildProgram(ctx context.Context, project, target string) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", target, "./internal/testbed/guest/init")
	command.Dir = project
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	return run(command)
}

func run(command *exec.Cmd) error {
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

var (
	versionField = regexp.MustCompile(`(?m)^Version: (\S+)$`)
	kernelField  = regexp.MustCompile(`(?m)^Depends: .*?(linux-image-\S+-cloud-amd64) \(= (\S+)\)`)
)

// packages are the newest packages of the kernel and the boot loader, each as name=version.
func packages(ctx context.Context) (kernel, loader string, err error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", "", fmt.Errorf("it comes from Debian's packages, and there is no apt-get: %w", err)
	}
	shown, err := show(ctx, "linux-image-cloud-amd64")
	if err != nil {
		// A fresh machine has no list of packages.
		if err := run(exec.CommandContext(ctx, "apt-get", "update", "-qq")); err != nil {
			return "", "", err
		}
		if shown, err = show(ctx, "linux-image-cloud-amd64"); err != nil {
			return "", "", err
		}
	}
	found := kernelField.FindStringSubmatch(shown)
	if found == nil {
		return "", "", errors.New("the package linux-image-cloud-amd64 names no kernel")
	}
	shown, err = show(ctx, "systemd-boot-efi")
	if err != nil {
		return "", "", err
	}
	version := versionField.FindStringSubmatch(shown)
	if version == nil {
		return "", "", errors.New("the package systemd-boot-efi has no version")
	}
	return found[1] + "=" + found[2], "systemd-boot-efi=" + version[1], nil
}

func show(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Output()
	if err != nil || len(out) == 0 {
		return "", fmt.Errorf("apt-cache knows no package %s: %w", name, err)
	}
	return string(out), nil
}

// build makes the image in a folder that has the program already.
func build(ctx context.Context, work, kernel, loader string, more addition) (string, error) {
	for _, name := range append([]string{kernel, loader}, more.packages...) {
		download := exec.CommandContext(ctx, "apt-get", "download", "-qq", name)
		download.Dir = work
		if err := run(download); err != nil {
			return "", err
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return "", err
	}
	tree := filepath.Join(work, "tree")
	for _, deb := range debs {
		if err := run(exec.CommandContext(ctx, "dpkg-deb", "--extract", deb, tree)); err != nil {
			return "", err
		}
	}
	kernels, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", fmt.Errorf("the package %s should have one kernel, and has %v: %w", kernel, kernels, err)
	}
	initramfs := filepath.Join(work, "initrd")
	if err := writeInitramfs(initramfs, filepath.Join(work, "init"), tree, more); err != nil {
		return "", err
	}
	return writeDisk(ctx, work, more.size, kernels[0], initramfs, filepath.Join(tree, "usr/lib/systemd/boot/efi/systemd-bootx64.efi"))
}

const bootEntry = `title testbed guest
linux /linux
initrd /initrd
options console=ttyS0 quiet panic=5
`

// writeDisk makes a disk with a FAT file system and nothing else: the folder that UEFI looks for on
// disks that it doesn't know, a boot loader, and what that starts.
func writeDisk(ctx context.Context, work string, size int64, kernel, initramfs, loader string) (string, error) {
	raw, image := filepath.Join(work, "disk.raw"), filepath.Join(work, "disk.qcow2")
	files := map[string]string{"loader.conf": "timeout 0\n", "guest.conf": bootEntry}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(raw, nil, 0o644); err != nil {
		return "", err
	}
	if err := os.Truncate(raw, size); err != nil {
		return "", err
	}
	commands := [][]string{
		{"mformat", "-i", raw, "-v", "GUEST", "-N", "7e57bed0", "-h", "16", "-s", "63", "-T", fmt.Sprint(size / 512), "::"},
		{"mmd", "-i", raw, "::EFI", "::EFI/BOOT", "::loader", "::loader/entries"},
		{"mcopy", "-i", raw, loader, "::EFI/BOOT/BOOTX64.EFI"},
		{"mcopy", "-i", raw, kernel, "::linux"},
		{"mcopy", "-i", raw, initramfs, "::initrd"},
		{"mcopy", "-i", raw, filepath.Join(work, "loader.conf"), "::loader/loader.conf"},
		{"mcopy", "-i", raw, filepath.Join(work, "guest.conf"), "::loader/entries/guest.conf"},
		{"qemu-img", "convert", "-O", "qcow2", raw, image},
	}
	for _, args := range commands {
		command := exec.CommandContext(ctx, args[0], args[1:]...)
		// The same image whenever it is made: no times of now, no zones.
		command.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000", "TZ=UTC", "MTOOLS_SKIP_CHECK=1")
		if err := run(command); err != nil {
			return "", err
		}
	}
	return image, nil
}

// writeInitramfs writes the program and the modules with what those need, in an order in which they
// can be loaded.
func writeInitramfs(target, program, tree string, more addition) error {
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(tree, "lib/modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, _, is := strings.Cut(filepath.Base(path), ".ko"); is {
			all[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return err
	}
	var order []string
	for _, name := range modules {
		if order, err = withDependencies(order, name, all); err != nil {
			return err
		}
	}
	archive := &cpio{}
	for _, folder := range []string{"dev", "proc", "sys", "seed", "modules"} {
		archive.folder(folder)
	}
	if err := archive.file("init", program); err != nil {
		return err
	}
	var list strings.Builder
	for _, name := range order {
		file := filepath.Base(all[name])
		fmt.Fprintln(&list, file)
		if err := archive.file("modules/"+file, all[name]); err != nil {
			return err
		}
	}
	archive.bytes("modules/order", []byte(list.String()), 0o644)
	if err := more.write(archive, tree); err != nil {
		return err
	}
	return os.WriteFile(target, archive.end(), 0o644)
}

// withDependencies adds a module to a list, after what it depends on. What has no file is a part of
// the kernel itself.
func withDependencies(order []string, name string, all map[string]string) ([]string, error) {
	path, there := all[name]
	if !there || slices.Contains(order, name) {
		return order, nil
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("the module %s doesn't say what it depends on", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		list, is := strings.CutPrefix(field, "depends=")
		if !is || list == "" {
			continue
		}
		for dependency := range strings.SplitSeq(list, ",") {
			if order, err = withDependencies(order, strings.ReplaceAll(dependency, "-", "_"), all); err != nil {
				return nil, err
			}
		}
	}
	return append(order, name), nil
}
