package main

import (
	"bytes"
	"io"
)

// output is standard output, which remembers the first write error: most callers that print ignore errors. It writes
// nothing after that error.
type output struct {
	w   io.Writer
	err error
	// columns is the maximum width of a line; 0 means any width. begun is a line whose end is not written yet.
	columns int
	begun   []byte
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	if o.columns == 0 {
		return o.write(data)
	}
	o.begun = append(o.begun, data...)
	for o.err == nil {
		line, rest, ended := bytes.Cut(o.begun, []byte("\n"))
		if !ended {
			break
		}
		_, _ = o.write([]byte(o.folded(line) + "\n")) // o.err has the error
		o.begun = rest
	}
	return len(data), o.err
}

// flush writes a last line without a line break.
func (o *output) flush() {
	_, _ = o.write([]byte(o.folded(o.begun))) // o.err has the error
	o.begun = nil
}

// folded returns a line in the form that is written.
func (o *output) folded(line []byte) string {
	if kept.Match(escape.ReplaceAll(line, nil)) {
		return string(line)
	}
	return fold(string(line), o.columns)
}

// write writes to the underlying writer.
func (o *output) write(data []byte) (int, error) {
	if o.err != nil || len(data) == 0 {
		return 0, o.err
	}
	n, err := o.w.Write(data)
	o.err = err
	return n, err
}
