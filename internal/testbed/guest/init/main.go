// Command init is the only program of a testbed's guest: process 1 of a Linux with only a kernel and its drivers. It
// gets an address by DHCP, reads the NoCloud seed or the Ignition configuration, and reports its input to the gateway,
// so that a test can check that the guest received what Cluster API sent. Then it acts as an API server, or as the load
// balancer in its user-data.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/guest/report"
)

const (
	networkDevice = "eth0"
	seedFolder    = "/seed"
	retry         = 500 * time.Millisecond
)

func main() {
	// When process 1 ends, the kernel panics.
	if err := boot(); err != nil {
		fmt.Println("testbed guest: failed:", err)
	}
	select {}
}

func boot() error {
	for _, mount := range []struct{ kind, target string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(mount.kind, mount.target, mount.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", mount.target, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	go powerOff()
	if err := powerButtons("/dev/input"); err != nil {
		return err
	}
	given, err := readSeed()
	if err != nil {
		return err
	}
	result := given.report
	if result.IgnitionSHA256, err = readIgnition("/sys/firmware/qemu_fw_cfg/by_name"); err != nil {
		return err
	}
	uuid, err := os.ReadFile("/sys/class/dmi/id/product_uuid")
	if err != nil {
		return err
	}
	result.SystemUUID = strings.ToLower(strings.TrimSpace(string(uuid)))
	if result.BootID, err = readLine("/proc/sys/kernel/random/boot_id"); err != nil {
		return err
	}
	if result.Disks, err = findDisks("/sys/block"); err != nil {
		return err
	}
	if result.Size, err = readSize("/proc", "/sys/block"); err != nil {
		return err
	}
	if result.TPM, err = readLine("/sys/class/tpm/tpm0/tpm_version_major"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if result.SecureBoot, err = readSecureBoot("/sys/firmware/efi/efivars"); err != nil {
		return err
	}
	device, err := net.InterfaceByName(networkDevice)
	if err != nil {
		return err
	}
	lease, err := bringUp(device, given.network)
	if err != nil {
		return err
	}
	result.MACAddress, result.Address = lease.mac.String(), lease.address.String()
	if result.Addresses, err = addressesOf(device); err != nil {
		return err
	}
	fmt.Printf("testbed guest: %+v\n", result)
	if err := serve(given); err != nil {
		return err
	}
	return send(result, lease.gateway)
}

// bringUp brings a device up by the seed's network-config, or by DHCP without one.
func bringUp(device *net.Interface, network []byte) (lease, error) {
	if network == nil {
		return configure(device)
	}
	want, err := parseNetwork(network, device.HardwareAddr)
	if err != nil {
		return lease{}, err
	}
	if want == nil {
		return configure(device)
	}
	return configureStatic(device, want)
}

// loadModules loads the kernel's modules in the order of their file names.
func loadModules() error {
	list, err := os.ReadFile("/modules/order")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		file, err := os.Open(filepath.Join("/modules", name))
		if err != nil {
			return err
		}
		flags := 0
		if !strings.HasSuffix(name, ".ko") {
			flags = unix.MODULE_INIT_COMPRESSED_FILE
		}
		err = unix.FinitModule(int(file.Fd()), "", flags)
		_ = file.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading the module %s: %w", name, err)
		}
	}
	return nil
}

// powerOff ends the guest on the kernel's request, after ctrl-alt-del.
func powerOff() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF)
	<-signals
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// seed is the content of the guest's seed.
type seed struct {
	// report has the part of the report about the seed.
	report report.Report
	// disk is the device, such as /dev/vdb, or empty without a seed.
	disk string
	// userData and network are unchanged. network is nil if it doesn't exist.
	userData, network []byte
}

// readSeed finds the disk with the seed by its label, as cloud-init does
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html). It returns an empty seed if there is none.
func readSeed() (seed, error) {
	devices, err := filepath.Glob("/sys/block/vd*")
	if err != nil {
		return seed{}, err
	}
	for _, device := range devices {
		disk := filepath.Join("/dev", filepath.Base(device))
		labelled, err := isSeed(disk)
		if err != nil {
			return seed{}, err
		}
		if !labelled {
			continue
		}
		if err := unix.Mount(disk, seedFolder, "iso9660", unix.MS_RDONLY, ""); err != nil {
			return seed{}, fmt.Errorf("mounting the seed %s: %w", disk, err)
		}
		return readSeedFrom(disk, seedFolder)
	}
	return seed{}, nil
}

// readSeedFrom reads the seed on a mounted disk.
func readSeedFrom(disk, folder string) (seed, error) {
	given := seed{disk: disk}
	metaData, err := os.ReadFile(filepath.Join(folder, "meta-data"))
	if err != nil {
		return seed{}, err
	}
	if err := yaml.Unmarshal(metaData, &given.report.MetaData); err != nil {
		return seed{}, fmt.Errorf("reading the meta-data: %w", err)
	}
	if given.userData, err = os.ReadFile(filepath.Join(folder, "user-data")); err != nil {
		return seed{}, err
	}
	sum := sha256.Sum256(given.userData)
	given.report.UserDataSHA256 = hex.EncodeToString(sum[:])
	given.network, err = os.ReadFile(filepath.Join(folder, "network-config"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return given, err
}

// isSeed reports whether a disk has an ISO 9660 file system with the label of a seed.
func isSeed(disk string) (bool, error) {
	const descriptor, labelAt = 32768, 40
	file, err := os.Open(disk)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	block := make([]byte, 128)
	if _, err := file.ReadAt(block, descriptor); err != nil {
		return false, nil // too small for a seed
	}
	label := strings.TrimSpace(string(block[labelAt : labelAt+32]))
	return bytes.Equal(block[1:6], []byte("CD001")) && strings.EqualFold(label, "cidata"), nil
}

// send posts the report to the gateway until it is accepted.
func send(result report.Report, gateway net.IP) error {
	content, err := json.Marshal(result)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s%s", net.JoinHostPort(gateway.String(), report.Port), report.Path)
	client := &http.Client{Timeout: 5 * time.Second}
	for attempt := 0; ; attempt++ {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(content))
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				fmt.Println("testbed guest: reported")
				return nil
			}
			err = errors.New(response.Status)
		}
		if attempt%20 == 0 {
			fmt.Println("testbed guest: reporting:", err)
		}
		time.Sleep(retry)
	}
}
