package world

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// shownColumns is the maximum length of a line in the output of a failed test.
const shownColumns = 500

// maxLog is the maximum size of the log in bytes: a soak writes for long.
const maxLog = 64 << 20

// Log has the output of the managers.
type Log struct {
	lock   sync.Mutex
	buffer bytes.Buffer
}

// Write adds to the log.
func (l *Log) Write(content []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if l.buffer.Len() > maxLog {
		l.buffer.Next(maxLog / 2)
	}
	return l.buffer.Write(content)
}

// String returns the current log.
func (l *Log) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.buffer.String()
}

// About returns the lines with a text. If there are more than most, it returns the first and the last ones.
func (l *Log) About(text string, most int) string {
	var lines []string
	for line := range strings.SplitSeq(l.String(), "\n") {
		if strings.Contains(line, text) {
			lines = append(lines, line[:min(len(line), shownColumns)])
		}
	}
	if left := len(lines) - most; left > 0 {
		lines = slices.Replace(lines, most/2, most/2+left, fmt.Sprintf("(%d lines)", left))
	}
	return strings.Join(lines, "\n")
}
