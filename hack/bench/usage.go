package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// usage is the time and memory of one side in one run.
type usage struct {
	Wall time.Duration
	// Peak is the memory of the largest process, in MiB.
	Peak float64
}

// stopwatch is the argument with which this program runs one command and reports its usage.
//
// A process starts as a copy of its parent, and its peak includes the memory of the copy. The memory of a
// benchmark that has filled an API server is larger than that of any measured process.
const stopwatch = "stopwatch"

// measured is the report of the stopwatch.
type measured struct {
	usage
	Status int
}

// timeCommand runs a command and writes its usage to the file descriptor 3. It returns the exit status
// of this process.
func timeCommand(command []string) int {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the parent of this process ends both
	cmd.Stderr = os.Stderr
	start := time.Now()
	err := cmd.Run()
	m := measured{usage: usage{Wall: time.Since(start)}}
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	m.Status = cmd.ProcessState.ExitCode()
	if rusage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.Peak = float64(rusage.Maxrss) / 1024
	}
	if err := json.NewEncoder(os.NewFile(3, "result")).Encode(m); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// measure runs commands one after the other and adds up their usage.
func (c comparison) measure(ctx context.Context, work string, commands [][]string) (usage, error) {
	var total usage
	for _, command := range commands {
		m, complaint, err := c.time(ctx, work, command)
		if err != nil {
			return total, fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, complaint)
		}
		if m.Status != 0 && !c.mayFail {
			return total, fmt.Errorf("%s: exit status %d: %s", strings.Join(command, " "), m.Status, complaint)
		}
		total.Wall += m.Wall
		total.Peak = max(total.Peak, m.Peak)
	}
	return total, nil
}

// time runs a command under the stopwatch. It also returns the command's standard error.
func (c comparison) time(ctx context.Context, work string, command []string) (m measured, complaint string, err error) {
	self, err := os.Executable()
	if err != nil {
		return m, "", err
	}
	result, writer, err := os.Pipe()
	if err != nil {
		return m, "", err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	cmd := exec.CommandContext(ctx, self, append([]string{stopwatch}, command...)...)
	cmd.Env = append(os.Environ(), "HOME="+work, "XDG_CONFIG_HOME="+filepath.Join(work, "config"), "GOPROXY=off")
	cmd.Env = append(cmd.Env, c.environment...)
	cmd.ExtraFiles = []*os.File{writer}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	ran := cmd.Run()
	if err := errors.Join(ran, writer.Close()); err != nil {
		return m, stderr.String(), err
	}
	return m, stderr.String(), json.NewDecoder(result).Decode(&m)
}
