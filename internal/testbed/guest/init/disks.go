package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sector is the kernel's unit for sizes of disks, independent of the disk's own sectors.
const sector = 512

// findDisks returns the sizes in bytes of the disks with a serial number, by that number, from a folder like
// /sys/block.
func findDisks(folder string) (map[string]int64, error) {
	devices, err := filepath.Glob(filepath.Join(folder, "vd*"))
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, device := range devices {
		serial, err := readLine(filepath.Join(device, "serial"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if serial == "" {
			continue
		}
		if sizes[serial], err = readDiskSize(device); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

// readDiskSize reads the size of a disk in bytes.
func readDiskSize(device string) (int64, error) {
	size, err := readLine(filepath.Join(device, "size"))
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the size of %s: %w", filepath.Base(device), err)
	}
	return sectors * sector, nil
}

func readLine(file string) (string, error) {
	content, err := os.ReadFile(file)
	return strings.TrimSpace(string(content)), err
}
