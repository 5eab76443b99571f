package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ticksASecond is the unit of CPU time in /proc (USER_HZ), the same on all architectures that Go runs on.
const ticksASecond = 100

// cpuTimes are how long CPUs have worked, for whom.
type cpuTimes struct {
	// of are the processes that this one has started, by the name of the program.
	of map[string]time.Duration
	// self is this process, and all is everything on this machine.
	self, all time.Duration
}

// cpuSoFar reads the times from /proc.
func cpuSoFar() (cpuTimes, error) {
	times := cpuTimes{of: map[string]time.Duration{}}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return times, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		name, parent, used, err := processTime(string(content))
		if err != nil {
			return times, fmt.Errorf("reading %s: %w", file, err)
		}
		switch {
		case filepath.Base(filepath.Dir(file)) == strconv.Itoa(os.Getpid()):
			times.self = used
		case parent == os.Getpid():
			times.of[name] += used
		}
	}
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return times, err
	}
	times.all, err = busyTime(string(content))
	return times, err
}

// processTime reads /proc/PID/stat.
func processTime(stat string) (name string, parent int, used time.Duration, err error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, 0, errors.New("there is no name")
	}
	fields := strings.Fields(stat[end+1:]) // from the state on, which is the third field
	const parentAt, userAt, systemAt = 1, 11, 12
	if len(fields) <= systemAt {
		return "", 0, 0, errors.New("there are too few fields")
	}
	parent, err = strconv.Atoi(fields[parentAt])
	ticks, tickErr := addUp(fields[userAt : systemAt+1])
	return stat[open+1 : end], parent, ticks, errors.Join(err, tickErr)
}

// busyTime reads the first line of /proc/stat: everything but idling, waiting, and what is counted twice.
func busyTime(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	const user, system, irq, softirq = 1, 3, 6, 7
	if len(fields) <= softirq || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading /proc/stat: %q isn't about all CPUs", line)
	}
	return addUp(append(fields[user:system+1:system+1], fields[irq:softirq+1]...))
}

func addUp(ticks []string) (time.Duration, error) {
	var all time.Duration
	for _, field := range ticks {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		all += time.Duration(number) * time.Second / ticksASecond
	}
	return all, nil
}

// since returns what was used since.
func (t cpuTimes) since(before cpuTimes) cpuTimes {
	between := cpuTimes{of: map[string]time.Duration{}, self: t.self - before.self, all: t.all - before.all}
	for name, used := range t.of {
		between.of[name] = used - before.of[name]
	}
	return between
}

// others returns what processes used that have nothing to do with this one.
func (t cpuTimes) others() time.Duration {
	rest := t.all - t.self
	for _, used := range t.of {
		rest -= used
	}
	return max(rest, 0)
}
