package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
)

// ignitionKey is the path of Ignition's configuration in QEMU's firmware configuration
// (https://coreos.github.io/ignition/supported-platforms/).
const ignitionKey = "opt/com.coreos/config/raw"

// readIgnition returns the hash of the Ignition configuration, or "" without one, from a folder like
// /sys/firmware/qemu_fw_cfg/by_name.
func readIgnition(folder string) (string, error) {
	content, err := os.ReadFile(filepath.Join(folder, ignitionKey))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
