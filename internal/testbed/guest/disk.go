package guest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
)

// loader is the boot loader of a guest.
type loader struct {
	// packages of Debian with its files.
	packages []string
	// files are files of the packages, and content are files with a given content, both by their paths on the guest's
	// disk.
	files, content map[string]string
}

// kernelOptions are the options of a guest's kernel.
const kernelOptions = "console=ttyS0 quiet panic=5"

// systemdBoot is a loader without a signature.
var systemdBoot = loader{
	packages: []string{"systemd-boot-efi"},
	files:    map[string]string{removableLoader: "usr/lib/systemd/boot/efi/systemd-bootx64.efi"},
	content: map[string]string{
		"loader/loader.conf":        "timeout 0\n",
		"loader/entries/guest.conf": "title testbed guest\nlinux /linux\ninitrd /initrd\noptions " + kernelOptions + "\n",
	},
}

// signedGRUB is a shim, which starts the GRUB in the same folder. GRUB reads its configuration from Debian's path.
var signedGRUB = loader{
	packages: []string{"shim-signed", "grub-efi-amd64-signed"},
	files: map[string]string{
		removableLoader:        "usr/lib/shim/shimx64.efi.signed",
		"EFI/BOOT/grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
	},
	content: map[string]string{"EFI/debian/grub.cfg": "linux /linux " + kernelOptions + "\ninitrd /initrd\nboot\n"},
}

// removableLoader is the path that firmware starts on an unknown disk.
const removableLoader = "EFI/BOOT/BOOTX64.EFI"

// build builds the image in a folder with the program.
func build(ctx context.Context, work string, packages []string, starts loader, more addition) (string, error) {
	for _, name := range packages {
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
		return "", fmt.Errorf("the packages %v should have one kernel, and have %v: %w", packages, kernels, err)
	}
	initramfs := filepath.Join(work, "initrd")
	if err := writeInitramfs(initramfs, filepath.Join(work, "init"), tree, more); err != nil {
		return "", err
	}
	disk := map[string]string{"linux": kernels[0], "initrd": initramfs}
	for target, source := range starts.files {
		disk[target] = filepath.Join(tree, source)
	}
	for target, content := range starts.content {
		disk[target] = filepath.Join(work, path.Base(target))
		if err := os.WriteFile(disk[target], []byte(content), 0o644); err != nil {
			return "", err
		}
	}
	return writeDisk(ctx, work, more.size, disk)
}

// writeDisk creates a disk of a size in bytes with only a FAT file system, which contains files by their paths in it.
func writeDisk(ctx context.Context, work string, size int64, files map[string]string) (string, error) {
	raw, image := filepath.Join(work, "disk.raw"), filepath.Join(work, "disk.qcow2")
	if err := os.WriteFile(raw, nil, 0o644); err != nil {
		return "", err
	}
	if err := os.Truncate(raw, size); err != nil {
		return "", err
	}
	commands := [][]string{
		{"mformat", "-i", raw, "-v", "GUEST", "-N", "7e57bed0", "-h", "16", "-s", "63", "-T", fmt.Sprint(size / 512), "::"},
	}
	folders := map[string]bool{}
	for target := range files {
		for folder := path.Dir(target); folder != "."; folder = path.Dir(folder) {
			folders[folder] = true
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) { // parents come first
		commands = append(commands, []string{"mmd", "-i", raw, "::" + folder})
	}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		commands = append(commands, []string{"mcopy", "-i", raw, files[target], "::" + target})
	}
	commands = append(commands, []string{"qemu-img", "convert", "-O", "qcow2", raw, image})
	for _, args := range commands {
		command := exec.CommandContext(ctx, args[0], args[1:]...)
		// The image doesn't depend on the time and the time zone.
		command.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1000000000", "TZ=UTC", "MTOOLS_SKIP_CHECK=1")
		if err := run(command); err != nil {
			return "", err
		}
	}
	return image, nil
}
