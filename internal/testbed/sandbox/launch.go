package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// launchVariable has what a launch is about.
const launchVariable = "TESTBED_LAUNCH"

// Command is a command with namespaces of its own inside of the sandbox. Its mounts are seen by
// itself alone.
type Command struct {
	// Args are the program and its arguments. The program is looked up in Root, if there is one.
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is the folder to start in.
	Dir string
	// Hostname is what the command takes for the name of its machine. None for the sandbox's.
	Hostname string
	// Network is the namespace of the network to be in. None for that of the sandbox.
	Network *Namespace
	// Root is the folder that becomes the root. None for the sandbox's own.
	Root string
	// ReadOnlyRoot lets nothing be written but in mounts.
	ReadOnlyRoot bool
	// Mounts are made in this order.
	Mounts []Mount
	// User and Group to run as.
	User, Group uint32
	// NoNewPrivileges keeps the program from getting more rights than it starts with.
	NoNewPrivileges bool
}

// Mount shows a folder or a file at another place.
type Mount struct {
	// Source is a path in the sandbox.
	Source string
	// Target is a path below the command's root.
	Target string
	// ReadOnly lets nothing be written.
	ReadOnly bool
}

// Cmd returns the command, ready to be started. Where it can't be launched, it writes why to its
// standard error and ends with status 125.
func (c Command) Cmd() (*exec.Cmd, error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("starting %v: %w", c.Args, err)
	}
	command := exec.Command("/proc/self/exe")
	command.Env = []string{stageVariable + "=" + stageLaunch, launchVariable + "=" + string(spec), "PATH=" + os.Getenv("PATH")}
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	return command, nil
}

const launchFailed = 125

// launch turns this process into the command that it was started for. It returns only to fail.
func launch() error {
	var c Command
	if err := json.Unmarshal([]byte(os.Getenv(launchVariable)), &c); err != nil {
		return fmt.Errorf("reading what to launch: %w", err)
	}
	if err := c.become(); err != nil {
		fmt.Fprintf(os.Stderr, "testbed: starting %v: %v\n", c.Args, err)
	}
	os.Exit(launchFailed)
	return nil
}

// become sets the namespaces up and replaces the process.
func (c Command) become() error {
	if len(c.Args) == 0 {
		return errors.New("there is no command")
	}
	// The namespace of the network is that of this thread, and the thread is what becomes the command.
	runtime.LockOSThread()
	if c.Network != nil {
		if err := c.Network.enter(); err != nil {
			return err
		}
		// It shows the devices of the network that it was mounted in.
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return fmt.Errorf("mounting /sys: %w", err)
		}
	}
	if c.Hostname != "" {
		if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
			return err
		}
	}
	if err := c.mount(); err != nil {
		return err
	}
	if c.Dir != "" {
		if err := os.Chdir(c.Dir); err != nil {
			return err
		}
	}
	if c.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("giving up new privileges: %w", err)
		}
	}
	if c.User != 0 || c.Group != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(int(c.Group)), syscall.Setuid(int(c.User))); err != nil {
			return fmt.Errorf("becoming user %d of group %d: %w", c.User, c.Group, err)
		}
	}
	path, err := c.program()
	if err != nil {
		return err
	}
	return syscall.Exec(path, c.Args, c.Env)
}

// program finds the program by the PATH that it will have itself.
func (c Command) program() (string, error) {
	if filepath.IsAbs(c.Args[0]) {
		return c.Args[0], nil
	}
	return exec.LookPath(c.Args[0])
}

func (c Command) mount() error {
	root := c.Root
	if root == "" {
		root = "/"
	}
	for _, mount := range c.Mounts {
		target := filepath.Join(root, mount.Target)
		if err := bind(mount.Source, target); err != nil {
			return err
		}
		if mount.ReadOnly {
			if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return fmt.Errorf("making %s read-only: %w", mount.Target, err)
			}
		}
	}
	if c.Root == "" {
		return nil
	}
	if err := mountDevices(filepath.Join(root, "dev"), []string{"null", "zero", "full", "random", "urandom"}); err != nil {
		return err
	}
	if err := bind("/proc", filepath.Join(root, "proc")); err != nil {
		return err
	}
	if c.ReadOnlyRoot {
		// Only a mount can be read-only, and a folder becomes one by being mounted on itself.
		if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mounting the root: %w", err)
		}
		if err := unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making the root read-only: %w", err)
		}
	}
	if err := syscall.Chroot(root); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return os.Chdir("/")
}
