package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

// The files of a running testbed, in its folder.
const (
	lockFile    = "lock" // locked while the testbed runs; has its process ID
	logFile     = "log"
	readyFile   = "ready"   // has the message for the user
	failedFile  = "failed"  // has the reason why it won't be ready
	waitingFile = "waiting" // has what it waits for
	wantedFile  = "wanted"  // has the secondOptions, in the folder of the second management cluster
)

// secondFolder is the subfolder with the files of the second management cluster.
const secondFolder = "second"

// secondOptions are the options of the second management cluster.
type secondOptions struct {
	// Start requests a second management cluster.
	Start bool `json:"-"`
	// ShareHosts makes it use the hosts from the beginning.
	ShareHosts bool `json:"shareHosts"`
}

// folderVariable names a folder for a testbed's files.
const folderVariable = "TESTBED_FOLDER"

// folder returns the folder of a checkout's testbed.
func folder() (string, error) {
	if folder := os.Getenv(folderVariable); folder != "" {
		return filepath.Abs(folder)
	}
	root, err := pinned.FindRoot()
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(root, "out", "testbed"))
}

// up starts a testbed in the background, or a second management cluster in a running one, or both, and waits until they
// are ready.
func up(second secondOptions) error {
	if err := sandbox.Usable(); err != nil {
		return err
	}
	dir, err := folder()
	if err != nil {
		return err
	}
	second.Start = second.Start || second.ShareHosts
	lock, err := takeLock(dir, false)
	if err != nil {
		return err
	}
	if lock == nil && !second.Start {
		return fmt.Errorf("a testbed runs already: see %s, or take it away with make testbed-down", filepath.Join(dir, readyFile))
	}
	started := lock != nil
	if started {
		if err := start(dir, lock); err != nil {
			return err
		}
	}
	text, err := await(dir, dir)
	if err != nil {
		return err
	}
	if started {
		fmt.Print(text)
	}
	if !second.Start {
		return nil
	}
	if text, err = upSecond(dir, second); err == nil {
		fmt.Print(text)
	}
	return err
}

// start starts a testbed that continues when this process ends, and keeps the lock.
func start(dir string, lock *os.File) error {
	defer func() { _ = lock.Close() }()
	// Remove the files of an earlier testbed, which may have been killed.
	for _, left := range []string{readyFile, waitingFile, secondFolder, "repository"} {
		if err := os.RemoveAll(filepath.Join(dir, left)); err != nil {
			return err
		}
	}
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command("/proc/self/exe", serveCommand)
	command.Args[0] = os.Args[0]
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{lock} // the lock belongs to the open file
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Fprintf(os.Stderr, "starting the testbed, which takes a minute, and longer the first time; its log is %s\n", log.Name())
	if err := command.Start(); err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteString(strconv.Itoa(command.Process.Pid))
	go func() { _ = command.Wait() }()
	return err
}

// upSecond makes the running testbed start its second management cluster, if it hasn't, and waits for that.
func upSecond(dir string, second secondOptions) (string, error) {
	own := filepath.Join(dir, secondFolder)
	if _, err := os.Stat(filepath.Join(own, readyFile)); err == nil {
		running, err := readSecondOptions(dir)
		if err == nil && second.ShareHosts && !running.ShareHosts {
			err = errors.New("the second management cluster was started without the hosts: move a cluster there, or start anew with make testbed-down and --share-hosts")
		}
		if err != nil {
			return "", err
		}
		return await(dir, own)
	}
	wanted, err := json.Marshal(second)
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(own, 0o755), replace(filepath.Join(own, wantedFile), wanted)); err != nil {
		return "", err
	}
	process, err := running(dir)
	if err != nil {
		return "", err
	}
	if process != 0 { // otherwise await reports that it has ended
		if err := syscall.Kill(process, syscall.SIGUSR1); err != nil {
			return "", fmt.Errorf("asking the testbed, process %d, for a second management cluster: %w", process, err)
		}
	}
	return await(dir, own)
}

// readSecondOptions reads the options of the second management cluster.
func readSecondOptions(dir string) (options secondOptions, err error) {
	content, err := os.ReadFile(filepath.Join(dir, secondFolder, wantedFile))
	if err != nil {
		return options, err
	}
	return options, json.Unmarshal(content, &options)
}

// await waits until the folder of a management cluster reports that it is ready, and returns the message for the user.
// Meanwhile it shows what the testbed waits for.
func await(dir, own string) (string, error) {
	waiting, err := os.OpenFile(filepath.Join(dir, waitingFile), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer func() { _ = waiting.Close() }()
	if _, err := waiting.Seek(0, io.SeekEnd); err != nil {
		return "", err
	}
	for {
		if _, err := io.Copy(os.Stderr, waiting); err != nil {
			return "", err
		}
		if text, err := os.ReadFile(filepath.Join(own, readyFile)); err == nil {
			return string(text), nil
		}
		if why, err := os.ReadFile(filepath.Join(own, failedFile)); err == nil {
			return "", fmt.Errorf("it did not start: %s", why)
		}
		process, err := running(dir)
		if err != nil {
			return "", err
		}
		if process == 0 {
			return "", fmt.Errorf("the testbed has ended:\n%s", tail(filepath.Join(dir, logFile)))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func tail(file string) []byte {
	const most = 4000
	content, err := os.ReadFile(file)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(content[max(0, len(content)-most):])
}

// replace writes a file atomically, because others wait for it.
func replace(file string, content []byte) error {
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// down ends the testbed, if one runs, and removes its files.
func down() error {
	dir, err := folder()
	if err != nil {
		return err
	}
	process, err := running(dir)
	if err != nil {
		return err
	}
	if process != 0 {
		if err := syscall.Kill(process, syscall.SIGTERM); err != nil {
			return fmt.Errorf("ending the testbed, process %d: %w", process, err)
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := takeLock(dir, true)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	return os.RemoveAll(dir)
}

// running returns the process of the testbed with its files in a folder, or 0 without one.
func running(dir string) (int, error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	lock, err := takeLock(dir, false)
	if err != nil {
		return 0, err
	}
	if lock != nil {
		return 0, lock.Close()
	}
	content, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return 0, err
	}
	process, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("%s should have the number of a process: %w", filepath.Join(dir, lockFile), err)
	}
	return process, nil
}

// takeLock locks a testbed's folder, which it creates if necessary. It returns nil if another process has the lock, or
// waits for it.
func takeLock(dir string, wait bool) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	err = syscall.Flock(int(file.Fd()), how)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, file.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", file.Name(), err)
	}
	return file, nil
}
