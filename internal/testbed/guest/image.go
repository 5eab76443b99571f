// Package guest builds the images of tiny guests: Debian's kernel for clouds, and an initramfs with one program. UEFI
// starts them from a disk, like any other image, in seconds without hardware virtualization.
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
	"runtime"
	"slices"
	"strings"
)

// modules are the drivers of a guest. Their dependencies are added.
var modules = []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "isofs", "button", "evdev", "qemu_fw_cfg", "efivarfs"}

// format is the version of the images, so that images of older versions in a cache aren't used.
const format = "3"

// Image returns the path of the guest image, a qcow2 file in the folder cache, where it is built once from Debian's
// packages of the kernel and of systemd-boot, which apt-get downloads, and from the program, which go builds in the
// folder of this project.
func Image(ctx context.Context, project, cache string) (string, error) {
	return image(ctx, project, cache, systemdBoot, addition{name: "guest", size: 48 << 20})
}

// SignedImage is Image with a loader for secure boot: Debian's shim, which has Microsoft's signature, and a GRUB and a
// kernel with Debian's.
func SignedImage(ctx context.Context, project, cache string) (string, error) {
	return image(ctx, project, cache, signedGRUB, addition{name: "signed", size: 64 << 20})
}

// image builds an image with an addition.
func image(ctx context.Context, project, cache string, starts loader, more addition) (_ string, err error) {
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
	kernel, err := newestKernel(ctx)
	if err != nil {
		return "", fmt.Errorf("finding the guest's kernel: %w", err)
	}
	packages, err := newest(ctx, slices.Concat(starts.packages, more.packages)...)
	if err != nil {
		return "", fmt.Errorf("finding the guest's packages: %w", err)
	}
	packages = append(packages, kernel)
	content, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	added, err := more.sum()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(content, "%s %s %v %s", format, packages, starts, added))
	image := filepath.Join(cache, more.name+"-"+hex.EncodeToString(sum[:8])+".qcow2")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	temporary, err := build(ctx, work, packages, starts, more)
	if err != nil {
		return "", fmt.Errorf("building the guest's image: %w", err)
	}
	return image, os.Rename(temporary, image)
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

// writeInitramfs writes the program and the modules with their dependencies, in the order for loading them.
func writeInitramfs(target, program, tree string, more addition) error {
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(tree, "lib/modules"), func(path string, _ fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
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

// withDependencies adds a module to a list, after its dependencies. A module without a file is built into the kernel.
func withDependencies(order []string, name string, all map[string]string) ([]string, error) {
	path, known := all[name]
	if !known || slices.Contains(order, name) {
		return order, nil
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the module %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("the module %s has no list of dependencies", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		list, ok := strings.CutPrefix(field, "depends=")
		if !ok || list == "" {
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
