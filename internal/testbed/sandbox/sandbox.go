// Package sandbox runs a program in new namespaces of processes, mounts and network, in which it may start daemons,
// create bridges and use any port. Nothing of it is visible outside, several sandboxes can exist at the same time, and
// the kernel removes a sandbox when its program ends in any way.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageVariable has the stage of a process that a sandbox has started.
const stageVariable = "TESTBED_STAGE"

// offVariable skips everything that needs a sandbox, if it is "off".
const offVariable = "TESTBED"

const (
	stageInit   = "init"   // process 1 of the sandbox
	stageInside = "inside" // the program itself
	stageLaunch = "launch" // a command that is about to start in its namespaces
)

// Dir is the sandbox's folder for all files of its programs. It is in memory, and disappears with the sandbox.
const Dir = "/run/testbed"

// programs are the required programs, with their Debian packages.
var programs = map[string]string{"ip": "iproute2"}

// Main runs a program in a sandbox and returns the exit status for its process. It starts the running program again,
// with the same arguments, so it must be called first in main or TestMain.
//
// prepare runs before, outside of the sandbox: it may build and download, because there is no network inside. Its
// changes of the environment are visible inside. run is the program inside.
func Main(prepare func() error, run func() int) int {
	var err error
	status := 1
	switch stage := os.Getenv(stageVariable); stage {
	case "":
		if os.Getenv(offVariable) == "off" {
			if os.Getenv("CI") != "" { // skipped tests would not be noticed there
				fmt.Fprintf(os.Stderr, "testbed: %s=off and CI are both in the environment, and continuous integration must not skip tests: remove one of them\n", offVariable)
				return 1
			}
			fmt.Fprintf(os.Stderr, "testbed: skipped, because %s=off is in the environment\n", offVariable)
			return 0
		}
		if err = Usable(); err == nil {
			if err = prepare(); err == nil {
				status, err = enter()
			}
		}
	case stageInit:
		status, err = beInit()
	case stageInside:
		return run()
	case stageLaunch:
		err = launch()
	default:
		err = fmt.Errorf("the environment has %s=%q, which is not a stage", stageVariable, stage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		return 1
	}
	return status
}

// Started reports whether a sandbox has started this process: then Main must be called, whatever the arguments are.
func Started() bool {
	return os.Getenv(stageVariable) != ""
}

// ErrUnusable is wrapped by errors about machines without support for a sandbox.
var ErrUnusable = errors.New("the testbed can't run here")

// Usable returns an error that wraps ErrUnusable and names the missing parts, if this machine doesn't support a
// sandbox.
func Usable() error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%w: it needs Linux, and this is %s", ErrUnusable, runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root, to create namespaces and bridges and to run containers as their users: run it as root, or skip its tests with %s=off in the environment", ErrUnusable, offVariable)
	}
	var missing []string
	for program, pkg := range programs {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Sprintf("%s (Debian's package %s)", program, pkg))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: there is no %s: run hack/tools/libvirt", ErrUnusable, strings.Join(missing, ", "))
	}
	// Try it in the kernel, because containers and seccomp filters refuse more than the list of capabilities shows.
	probe := exec.Command("ip", "link", "add", "testbed0", "type", "bridge")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if out, err := probe.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: it needs namespaces of mounts, processes and network and the right to create a bridge in them "+
			"(CAP_SYS_ADMIN and CAP_NET_ADMIN; in a container: --privileged), or %s=off in the environment to skip its tests: %w: %s", ErrUnusable, offVariable, err, strings.TrimSpace(string(out)))
	}
	return nil
}

const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// again returns the command of this program for another stage.
func again(stage string, args ...string) *exec.Cmd {
	command := exec.Command("/proc/self/exe", args...)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), stageVariable+"="+stage)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return command
}

// enter starts process 1 of a new sandbox and waits for its end.
func enter() (int, error) {
	// The kernel sends the death signal when the thread that started a process ends, not its program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command := again(stageInit, os.Args[1:]...)
	command.ExtraFiles = inherited
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return 1, fmt.Errorf("creating the sandbox: %w", err)
	}
	return wait(command)
}

// inherited are open files that the sandbox's program has as 3, 4 and so on.
var inherited []*os.File

// Inherit passes an open file to the program in the sandbox, where Inherited returns it. prepare can pass a listening
// socket that is reachable from outside.
func Inherit(file *os.File) {
	inherited = append(inherited, file)
}

// Inherited returns the file with an index, in the order of the calls of Inherit.
func Inherited(index int) *os.File {
	return os.NewFile(uintptr(3+index), "inherited")
}

// passedOn are the signals that are forwarded to the program in the sandbox.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1}

// passSignals forwards signals of this process to another one until stop is called.
func passSignals(to *os.Process) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn...)
	go func() {
		for received := range signals {
			_ = to.Signal(received)
		}
	}()
	return func() { signal.Stop(signals) }
}

// wait forwards signals to a process until it ends, and returns its exit status.
func wait(command *exec.Cmd) (int, error) {
	defer passSignals(command.Process)()
	err := command.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status := exit.ExitCode(); status > 0 {
			return status, nil
		}
		return 1, fmt.Errorf("the sandbox ended with %w", err)
	}
	return 0, err
}

// beInit is process 1: it sets up the sandbox, starts the program, and reaps orphaned processes, because libvirt takes
// a zombie for a running process. When it returns, the kernel kills the remaining processes.
func beInit() (int, error) {
	if err := furnish(); err != nil {
		return 1, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program := again(stageInside, os.Args[1:]...)
	for i := range extraFiles() {
		program.ExtraFiles = append(program.ExtraFiles, Inherited(i))
	}
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := program.Start(); err != nil {
		return 1, fmt.Errorf("starting in the sandbox: %w", err)
	}
	defer passSignals(program.Process)()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 1, fmt.Errorf("waiting for processes of the sandbox: %w", err)
		case pid != program.Process.Pid:
			continue
		case status.Signaled():
			return 1, fmt.Errorf("the program in the sandbox ended by signal: %s", status.Signal())
		case status.Exited():
			return status.ExitStatus(), nil
		}
	}
}

// extraFiles counts the files that this process has inherited.
func extraFiles() int {
	count := 0
	for {
		var stat syscall.Stat_t
		// The runtime's own files have the flag close-on-exec, and inherited ones don't.
		flags, err := unix.FcntlInt(uintptr(3+count), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 || syscall.Fstat(3+count, &stat) != nil {
			return count
		}
		count++
	}
}

// furnish mounts the sandbox's folders, its own /proc and /sys, and a /dev without KVM.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping the sandbox's mounts to itself: %w", err)
	}
	// /run has the hosts' volumes, which take less than their capacity: a pool should offer more than there is memory.
	for _, mount := range []struct{ kind, target, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"tmpfs", "/run", "mode=755,size=150%"},
	} {
		if err := unix.Mount(mount.kind, mount.target, mount.kind, 0, mount.options); err != nil {
			return fmt.Errorf("mounting %s in the sandbox: %w", mount.target, err)
		}
	}
	if err := os.Mkdir(Dir, 0o755); err != nil {
		return err
	}
	// If the KVM device exists but doesn't work, libvirt tries it again and again.
	if err := mountDevices("/run/dev", []string{"null", "zero", "full", "random", "urandom", "tty", "net/tun"}); err != nil {
		return err
	}
	for _, mount := range []struct{ kind, target, options string }{
		{"devpts", "/run/dev/pts", "newinstance,mode=620,ptmxmode=666"}, {"tmpfs", "/run/dev/shm", "mode=1777"},
	} {
		if err := os.Mkdir(mount.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(mount.kind, mount.target, mount.kind, 0, mount.options); err != nil {
			return fmt.Errorf("mounting %s in the sandbox: %w", mount.target, err)
		}
	}
	if err := mountHugepages("/run/dev/hugepages"); err != nil {
		return err
	}
	if err := os.Symlink("pts/ptmx", "/run/dev/ptmx"); err != nil {
		return err
	}
	if err := unix.Mount("/run/dev", "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mounting /dev in the sandbox: %w", err)
	}
	if err := os.Setenv("TMPDIR", Dir); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("testbed")); err != nil {
		return err
	}
	return ip("link set lo up")
}

// mountHugepages mounts huge pages at the usual place for guests, if the kernel supports them.
func mountHugepages(target string) error {
	if err := os.Mkdir(target, 0o755); err != nil {
		return err
	}
	err := unix.Mount("hugetlbfs", target, "hugetlbfs", 0, "mode=755,pagesize=2M")
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("mounting huge pages in the sandbox: %w", err)
	}
	return nil
}

// mountDevices creates a folder with devices of the machine.
func mountDevices(target string, names []string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	for _, name := range names {
		if err := bind(filepath.Join("/dev", name), filepath.Join(target, name)); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or a folder at another place, which it creates.
func bind(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
			var file *os.File
			if file, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
				err = file.Close()
			}
		}
	}
	if err != nil {
		return fmt.Errorf("creating the target of %s: %w", source, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}
