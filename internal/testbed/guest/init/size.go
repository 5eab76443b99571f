package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
)

// rootDisk is the disk that the guest starts from, which is its first.
const rootDisk = "vda"

// readSize returns the size of the machine, from folders like /proc and /sys/block.
func readSize(proc, block string) (report.Size, error) {
	memory, err := readMemory(filepath.Join(proc, "meminfo"))
	if err != nil {
		return report.Size{}, err
	}
	disk, err := readDiskSize(filepath.Join(block, rootDisk))
	return report.Size{CPUs: runtime.NumCPU(), MemoryBytes: memory, RootDiskBytes: disk}, err
}

// readMemory returns the memory that the kernel can use.
func readMemory(file string) (int64, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			return kibibytes << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no MemTotal", file)
}
