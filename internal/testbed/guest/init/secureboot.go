package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// secureBootVariable is the firmware's variable for secure boot, with the GUID of UEFI's own variables (UEFI
// Specification, "Globally Defined Variables").
const secureBootVariable = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// readSecureBoot mounts the firmware's variables on a folder, and reports whether secure boot is on. Without UEFI the
// kernel has no such folder.
func readSecureBoot(folder string) (bool, error) {
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err := unix.Mount("efivarfs", folder, "efivarfs", unix.MS_RDONLY, ""); err != nil {
		return false, fmt.Errorf("mounting the firmware's variables: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(folder, secureBootVariable))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // firmware without secure boot
	}
	if err != nil {
		return false, err
	}
	return parseSecureBoot(content)
}

// parseSecureBoot parses the variable in the kernel's form: four bytes of attributes, and one that is 1 or 0.
func parseSecureBoot(content []byte) (bool, error) {
	if len(content) != 5 || content[4] > 1 {
		return false, fmt.Errorf("the firmware's variable SecureBoot is %x, and should be four bytes and 00 or 01", content)
	}
	return content[4] == 1, nil
}
