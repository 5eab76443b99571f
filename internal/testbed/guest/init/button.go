package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The kernel's event of a key: struct input_event of linux/input.h on 64-bit machines, with the time first, and the
// numbers of linux/input-event-codes.h.
const (
	eventSize  = 24
	eventTime  = 16
	keyEvent   = 1
	powerKey   = 116
	keyPressed = 1
)

// powerButtons waits in the background for the machine's power button, which libvirt presses to shut a guest down, and
// then ends the guest.
func powerButtons(folder string) error {
	devices, err := filepath.Glob(filepath.Join(folder, "event*"))
	if err != nil {
		return err
	}
	for _, device := range devices {
		file, err := os.Open(device)
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = file.Close() }()
			if isPowerPressed(file) {
				fmt.Println("testbed guest: the power button was pressed")
				unix.Sync()
				_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
			}
		}()
	}
	return nil
}

// isPowerPressed reads the events of a device until its power button is pressed or there are no more.
func isPowerPressed(device io.Reader) bool {
	event := make([]byte, eventSize)
	for {
		if _, err := io.ReadFull(device, event); err != nil {
			return false
		}
		kind, key := binary.NativeEndian.Uint16(event[eventTime:]), binary.NativeEndian.Uint16(event[eventTime+2:])
		if kind == keyEvent && key == powerKey && binary.NativeEndian.Uint32(event[eventTime+4:]) == keyPressed {
			return true
		}
	}
}
