package main

import (
	"bytes"
	"errors"
	"fmt"
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

// The files of a testbed that runs, in its folder.
const (
	lockFile    = "lock" // locked as long as it runs; has the process
	logFile     = "log"
	readyFile   = "ready"   // has what to tell the user
	waitingFile = "waiting" // says what it waits for
)

// folder is where a checkout's testbed has its files.
func folder() (string, error) {
	root, err := pinned.FindRoot()
	if err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(root, "out", "testbed"))
}

// up starts a testbed in the background and waits until it is ready.
func up() error {
	if err := sandbox.Usable(); err != nil {
		return err
	}
	dir, err := folder()
	if err != nil {
		return err
	}
	lock, err := takeLock(dir, false)
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("a testbed of this checkout runs already: see %s, or take it away with make testbed-down", filepath.Join(dir, readyFile))
	}
	// What an earlier one left, for it may have been killed.
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, readyFile)), os.RemoveAll(filepath.Join(dir, waitingFile)), os.RemoveAll(filepath.Join(dir, "repository"))); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command := exec.Command("/proc/self/exe", serveCommand)
	command.Args[0] = os.Args[0]
	command.Stdout, command.Stderr = log, log
	command.ExtraFiles = []*os.File{lock} // the lock is that of the open file, and goes on with it
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	fmt.Fprintf(os.Stderr, "starting the testbed, which takes a minute, and longer the first time; its log is %s\n", log.Name())
	if err := command.Start(); err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	if _, err := lock.WriteString(strconv.Itoa(command.Process.Pid)); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	shown := 0
	for {
		if waiting, err := os.ReadFile(filepath.Join(dir, waitingFile)); err == nil && len(waiting) > shown {
			_, _ = os.Stderr.Write(waiting[shown:])
			shown = len(waiting)
		}
		if told, err := os.ReadFile(filepath.Join(dir, readyFile)); err == nil {
			_, err := os.Stdout.Write(told)
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it did not start: %w\n%s", err, tail(log.Name()))
		case <-time.After(200 * time.Millisecond):
		}
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

// down ends the testbed, if one runs, and removes its files.
func down() error {
	dir, err := folder()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := takeLock(dir, false)
	if err != nil {
		return err
	}
	if lock == nil {
		content, err := os.ReadFile(filepath.Join(dir, lockFile))
		if err != nil {
			return err
		}
		process, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			return fmt.Errorf("%s should have the number of a process: %w", filepath.Join(dir, lockFile), err)
		}
		if err := syscall.Kill(process, syscall.SIGTERM); err != nil {
			return fmt.Errorf("ending the testbed, process %d: %w", process, err)
		}
		if lock, err = takeLock(dir, true); err != nil {
			return err
		}
	}
	defer func() { _ = lock.Close() }()
	return os.RemoveAll(dir)
}

// takeLock locks a testbed's folder, which it makes where it isn't there. It returns nil where another
// has it, or waits for that.
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
