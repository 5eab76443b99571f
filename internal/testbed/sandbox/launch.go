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

// launchVariable has the Command of a launch.
const launchVariable = "TESTBED_LAUNCH"

// Command is a command in the sandbox with its own namespaces. Its mounts are visible to the command only.
type Command struct {
	// Args are the program and its arguments. The program is looked up in Root, if set.
	Args []string
	// Env is the whole environment.
	Env []string
	// Dir is the working directory.
	Dir string
	// Hostname is the command's host name, or empty for that of the sandbox.
	Hostname string
	// Network is the command's network namespace, or nil for that of the sandbox.
	Network *Namespace
	// Root is the folder that becomes the root, or empty for that of the sandbox.
	Root string
	// ReadOnlyRoot makes everything except mounts read-only.
	ReadOnlyRoot bool
	// Mounts are mounted in this order.
	Mounts []Mount
	// User and Group of the process.
	User, Group uint32
	// NoNewPrivileges keeps the program from gaining rights.
	NoNewPrivileges bool
}

// Mount mounts a folder or a file at another place.
type Mount struct {
	// Source is a path in the sandbox.
	Source string
	// Target is a path below the command's root.
	Target string
	// ReadOnly makes the mount read-only.
	ReadOnly bool
}

// Cmd returns the command, ready to start. If it can't be launched, the process writes the error to its standard error
// and ends with status 125.
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

// launch replaces this process by its command. It returns only after an error.
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

// become sets up the namespaces and replaces the process.
func (c Command) become() error {
	if len(c.Args) == 0 {
		return errors.New("there is no command")
	}
	// The network namespace is that of this thread, which becomes the command.
	runtime.LockOSThread()
	if c.Network != nil {
		if err := c.Network.enter(); err != nil {
			return err
		}
		// sysfs shows the devices of the network namespace in which it was mounted.
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

// program looks up the program in the PATH of its environment.
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
		// Only a mount can be read-only, so the folder is mounted on itself.
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
