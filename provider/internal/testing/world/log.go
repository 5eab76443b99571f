package world

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// shownColumns is how much of a line a failed test shows.
const shownColumns = 500

// maxLog is how much is kept, in bytes: a soak writes for long.
const maxLog = 64 << 20

// Log holds what the managers write.
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

// String returns the log as it is now.
func (l *Log) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.buffer.String()
}

// About returns the lines that have a text in them: the first and the last ones if there are more than most.
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
