package world

import (
	"bytes"
	"strings"
	"sync"
)

// shownColumns is how much of a line a failed test shows.
const shownColumns = 300

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

// about returns the last lines that have a text in them.
func (l *Log) about(text string, last int) string {
	var lines []string
	for line := range strings.SplitSeq(l.String(), "\n") {
		if strings.Contains(line, text) {
			lines = append(lines, line[:min(len(line), shownColumns)])
		}
	}
	return strings.Join(lines[max(0, len(lines)-last):], "\n")
}
