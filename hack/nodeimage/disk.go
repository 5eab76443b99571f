package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// kernelOptions are the options of a node's kernel. All after panic are for processors that QEMU emulates:
//   - such a processor has no vulnerabilities, and mitigations for them cost a third of the time
//   - the kernel doesn't trust its clock to be the same on all processors, so that reading the time leaves the guest
//   - the kernel copies and clears memory with instructions that are fast on real processors, but QEMU emulates them
//     byte by byte. Without them, pipes have five times the throughput, and the kernel provides a page in half the time
const kernelOptions = "root=LABEL=root rw console=tty0 console=ttyS0 panic=10 " +
	"mitigations=off tsc=reliable clearcpuid=erms,fsrm,rep_good,smap no5lvl"

// Sizes in bytes: of the whole disk, of the space before the first partition and after the last, and of the partition
// that firmware reads. The rest is the root file system, which cloud-init grows when the node starts.
const (
	diskSize = 4 << 30
	edge     = 1 << 20
	bootSize = 128 << 20
)

// writeDisk writes the tree to a disk: a partition with the kernel that UEFI starts, and the root file system.
func (b *builder) writeDisk(ctx context.Context) error {
	boot, err := b.takeKernel()
	if err != nil {
		return err
	}
	raw := filepath.Join(b.work, "disk.raw")
	if err := errors.Join(os.WriteFile(raw, nil, 0o600), os.Truncate(raw, diskSize)); err != nil {
		return err
	}
	table := filepath.Join(b.work, "partitions")
	partitions := fmt.Sprintf("label: gpt\nlabel-id: 6f1d3c5a-1f0e-4c8e-9a57-0d6b3a4f2c01\nunit: sectors\n"+
		"start=%d, size=%d, type=U, uuid=6f1d3c5a-1f0e-4c8e-9a57-0d6b3a4f2c02\nstart=%d, size=%d, type=L, uuid=6f1d3c5a-1f0e-4c8e-9a57-0d6b3a4f2c03\n",
		edge/512, bootSize/512, (edge+bootSize)/512, rootSize/512)
	if err := os.WriteFile(table, []byte(partitions), 0o600); err != nil {
		return err
	}
	fat := fmt.Sprintf("%s@@%d", raw, edge)
	commands := [][]string{
		{"sh", "-c", `exec sfdisk --quiet "$1" < "$2"`, "sh", raw, table},
		{"mformat", "-i", fat, "-F", "-v", "BOOT", "-N", "7e57bed0", "-h", "16", "-s", "63", "-T", fmt.Sprint(bootSize / 512), "::"},
		{"mcopy", "-s", "-i", fat, filepath.Join(boot, "EFI"), filepath.Join(boot, "loader"), filepath.Join(boot, "linux"), filepath.Join(boot, "initrd"), "::"},
		{
			"mke2fs", "-q", "-t", "ext4", "-L", "root", "-U", "6f1d3c5a-1f0e-4c8e-9a57-0d6b3a4f2c04", "-m", "1", "-d", b.tree,
			"-E", fmt.Sprintf("offset=%d,hash_seed=6f1d3c5a-1f0e-4c8e-9a57-0d6b3a4f2c05", edge+bootSize), raw, fmt.Sprintf("%dk", rootSize>>10),
		},
		{"qemu-img", "convert", "-c", "-O", "qcow2", "-o", "compression_type=zstd", raw, b.disk()},
	}
	for _, args := range commands {
		if _, err := command(ctx, args[0], args[1:]...); err != nil {
			return err
		}
	}
	return nil
}

const rootSize = diskSize - bootSize - 2*edge

// takeKernel moves the files that firmware starts from the tree to a folder with the layout of their partition.
func (b *builder) takeKernel() (string, error) {
	boot := filepath.Join(b.work, "boot")
	for _, folder := range []string{"EFI/BOOT", "loader/entries"} {
		if err := os.MkdirAll(filepath.Join(boot, folder), 0o755); err != nil {
			return "", err
		}
	}
	for pattern, target := range map[string]string{
		"boot/vmlinuz-*":    "linux",
		"boot/initrd.img-*": "initrd",
		"usr/lib/systemd/boot/efi/systemd-bootx64.efi": "EFI/BOOT/BOOTX64.EFI",
	} {
		matches, err := filepath.Glob(filepath.Join(b.tree, pattern))
		if err != nil {
			return "", err
		}
		if len(matches) != 1 {
			return "", fmt.Errorf("there should be one file %s in Debian's packages, and there are %d: %w", pattern, len(matches), fs.ErrNotExist)
		}
		if err := os.Rename(matches[0], filepath.Join(boot, target)); err != nil {
			return "", err
		}
	}
	entry := fmt.Sprintf("title Kubernetes %s\nlinux /linux\ninitrd /initrd\noptions %s\n", b.version, kernelOptions)
	return boot, errors.Join(
		os.WriteFile(filepath.Join(boot, "loader/loader.conf"), []byte("timeout 0\n"), 0o600),
		os.WriteFile(filepath.Join(boot, "loader/entries/node.conf"), []byte(entry), 0o600),
	)
}
