package main

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// cpuTimes are the CPU times of processes.
type cpuTimes struct {
	// of are the processes that this one has started, by the name of the program.
	of map[string]time.Duration
	// self is this process, and all is every process of this machine.
	self, all time.Duration
}

// cpuSoFar reads the times from /proc.
func cpuSoFar() (cpuTimes, error) {
	times := cpuTimes{of: map[string]time.Duration{}}
	processes, err := procfs.AllProcs()
	if err != nil {
		return times, err
	}
	for _, process := range processes {
		stat, err := process.Stat()
		if err != nil {
			continue // it has ended
		}
		switch os.Getpid() {
		case stat.PID:
			times.self = seconds(stat.CPUTime())
		case stat.PPID:
			times.of[stat.Comm] += seconds(stat.CPUTime())
		}
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return times, err
	}
	stat, err := proc.Stat()
	all := stat.CPUTotal
	times.all = seconds(all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ)
	return times, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// since returns the times that were used since before.
func (t cpuTimes) since(before cpuTimes) cpuTimes {
	between := cpuTimes{of: map[string]time.Duration{}, self: t.self - before.self, all: t.all - before.all}
	for name, used := range t.of {
		between.of[name] = used - before.of[name]
	}
	return between
}

// others returns the times of processes that are unrelated to this one.
func (t cpuTimes) others() time.Duration {
	rest := t.all - t.self
	for _, used := range t.of {
		rest -= used
	}
	return max(rest, 0)
}
