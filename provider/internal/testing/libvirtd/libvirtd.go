// Package libvirtd runs libvirt daemons for tests, each with its own folders and a storage pool called default. They
// don't run as root, because libvirt would then use the machine's own folders.
package libvirtd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/hosturi"
)

const timeout = time.Minute

// Daemon is a libvirtd with QEMU.
type Daemon struct {
	folder  string
	command *exec.Cmd
	// arguments of its program.
	arguments []string
}

func missingPrograms() []string {
	var missing []string
	for _, program := range []string{"libvirtd", "qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	return missing
}

// Installed reports whether the programs that a Daemon needs are installed.
func Installed() bool { return len(missingPrograms()) == 0 }

// Need skips a test if Installed returns false, and fails it in CI.
func Need(t *testing.T) {
	t.Helper()
	if missing := missingPrograms(); len(missing) > 0 {
		Without(t, strings.Join(missing, ", "))
	}
}

// Without ends a test that lacks a prerequisite: it is skipped, and fails in CI.
func Without(t *testing.T, missing string) {
	t.Helper()
	prerequisite.Missing(t, fmt.Sprintf("there is no %s: run hack/tools/libvirt, which installs Debian's packages", missing))
}

// New creates a daemon's folders and starts it. The caller must stop it.
func New() (_ *Daemon, err error) {
	// Not the tests' temporary folder: the path of a socket must be short.
	folder, err := os.MkdirTemp("/tmp", "caplv")
	if err != nil {
		return nil, err
	}
	d := &Daemon{folder: folder}
	defer func() {
		if err != nil {
			d.Stop()
		}
	}()
	if err := own(folder); err != nil {
		return nil, err
	}
	for _, name := range []string{"run", "config", "config/libvirt", "cache", "data", "pool", "console"} {
		if err := makeFolder(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
	}
	// On a machine without a UUID libvirtd chooses a new one at each start, and would be another hypervisor.
	configuration := fmt.Appendf(nil, "host_uuid = %q\n", uuid.NewUUID())
	if err := os.WriteFile(filepath.Join(folder, "config", "libvirt", "libvirtd.conf"), configuration, 0o644); err != nil { //nolint:gosec // the daemon runs as another user
		return nil, err
	}
	configuration = fmt.Appendf(nil, "max_size = %d\nmax_backups = %d\n", ConsoleLogBytes, ConsoleLogBackups)
	if err := os.WriteFile(filepath.Join(folder, "config", "libvirt", "virtlogd.conf"), configuration, 0o644); err != nil { //nolint:gosec // the daemon runs as another user
		return nil, err
	}
	if err := d.Start(); err != nil {
		return nil, err
	}
	return d, d.addPool("default", d.PoolFolder())
}

func (d *Daemon) addPool(name, folder string) error {
	return d.do(func(client *golibvirt.Libvirt) error {
		pool, err := client.StoragePoolDefineXML(fmt.Sprintf("<pool type='dir'><name>%s</name><target><path>%s</path></target></pool>", name, folder), 0)
		if err != nil {
			return err
		}
		return errors.Join(client.StoragePoolSetAutostart(pool, 1), client.StoragePoolCreate(pool, 0))
	})
}

// AddPool adds a storage pool with a new, empty folder.
func (d *Daemon) AddPool(name string) error {
	folder := filepath.Join(d.folder, "pool-"+name)
	if err := makeFolder(folder); err != nil {
		return err
	}
	return d.addPool(name, folder)
}

// makeFolder creates a folder of the daemon.
func makeFolder(folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	return own(folder)
}

// own gives a file or folder to the user of the daemon.
func own(path string) error {
	credential, err := credential()
	if err != nil || credential == nil {
		return err
	}
	return os.Chown(path, int(credential.Uid), int(credential.Gid))
}

// credential returns the user of the daemon, or nil for that of the tests.
func credential() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// Start starts the daemon, again after Kill, and waits until it answers.
func (d *Daemon) Start() error {
	log, err := os.OpenFile(filepath.Join(d.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	credential, err := credential()
	if err != nil {
		return err
	}
	d.command = exec.CommandContext(context.Background(), "libvirtd", d.arguments...) //nolint:gosec // the arguments are constants of this package
	d.command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.folder, "XDG_RUNTIME_DIR=" + filepath.Join(d.folder, "run"),
		"XDG_CONFIG_HOME=" + filepath.Join(d.folder, "config"), "XDG_CACHE_HOME=" + filepath.Join(d.folder, "cache"),
		"XDG_DATA_HOME=" + filepath.Join(d.folder, "data"),
	}
	d.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Credential: credential}
	d.command.Stdout, d.command.Stderr = log, log
	if err := d.command.Start(); err != nil {
		d.command = nil
		return err
	}
	for deadline := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		err := d.do(func(*golibvirt.Libvirt) error { return nil })
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			written, logErr := os.ReadFile(log.Name())
			return errors.Join(fmt.Errorf("waiting for libvirtd: %w", err), logErr, errors.New(string(written)))
		}
	}
}

// do runs act with a new connection to the daemon.
func (d *Daemon) do(act func(*golibvirt.Libvirt) error) error {
	client := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(d.URI().Socket)))
	if err := client.ConnectToURI(golibvirt.QEMUSession); err != nil {
		return err
	}
	return errors.Join(act(client), client.Disconnect())
}

// URI returns the URI of the daemon.
func (d *Daemon) URI() hosturi.URI {
	return hosturi.URI{
		Driver: hosturi.QEMU, Transport: hosturi.Unix, Path: "/session",
		Socket: filepath.Join(d.folder, "run", "libvirt", "libvirt-sock"),
	}
}

// PoolFolder returns the folder of the pool's volumes.
func (d *Daemon) PoolFolder() string { return filepath.Join(d.folder, "pool") }

// ConsoleFolder returns the folder for console logs of guests. virtlogd, which the daemon starts on demand, limits a
// file to ConsoleLogBytes, with ConsoleLogBackups older parts.
func (d *Daemon) ConsoleFolder() string { return filepath.Join(d.folder, "console") }

const (
	// ConsoleLogBytes is max_size of virtlogd.conf.
	ConsoleLogBytes = 8 << 10
	// ConsoleLogBackups is max_backups of virtlogd.conf.
	ConsoleLogBackups = 2
)

// Kill kills the daemon with signal 9. Its guests keep running.
func (d *Daemon) Kill() {
	_ = d.command.Process.Kill()
	_ = d.command.Wait()
	d.command = nil
}

// Guests returns the processes of the daemon's guests, including forgotten ones.
func (d *Daemon) Guests() ([]int, error) {
	// Processes that libvirt starts to query the capabilities of QEMU have no guest.
	return d.processes(func(arguments string) bool { return strings.Contains(arguments, "guest=") })
}

// processes returns the wanted QEMU processes of the daemon.
func (d *Daemon) processes(wanted func(arguments string) bool) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, file := range files {
		line, err := os.ReadFile(file) //nolint:gosec // a file of this machine's kernel
		if err != nil {
			continue // it has ended
		}
		arguments := string(line)
		if !strings.Contains(arguments, d.folder+"/") || !wanted(arguments) {
			continue
		}
		process, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		found = append(found, process)
	}
	slices.Sort(found)
	return found, nil
}

// Stop ends the daemon and all processes that it has started, and removes its folders. A test that may not leave guests
// must check for them before.
func (d *Daemon) Stop() {
	if d.command != nil {
		_ = d.command.Process.Signal(syscall.SIGTERM)
		_ = d.command.Wait()
	}
	// Guests keep running without their daemon. Processes that a killed daemon has started to query the capabilities of
	// QEMU wait for it for ever.
	started, _ := d.processes(func(string) bool { return true })
	if text, err := os.ReadFile(filepath.Join(d.folder, "run", "libvirt", "virtlogd.pid")); err == nil {
		if process, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			started = append(started, process)
		}
	}
	for _, process := range started {
		_ = syscall.Kill(process, syscall.SIGKILL)
	}
	_ = os.RemoveAll(d.folder)
}
