package main

import (
	"bytes"
	"io"
)

// output is standard output, which remembers why it can't be written: most of what prints does not ask.
// Nothing is written after the first error.
type output struct {
	w   io.Writer
	err error
	// columns is how wide a line may be; 0 is any width. begun is a line whose end is not written yet.
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

// flush writes a last line without an end.
func (o *output) flush() {
	_, _ = o.write([]byte(o.folded(o.begun))) // o.err has the error
	o.begun = nil
}

// folded returns a line as it is written.
func (o *output) folded(line []byte) string {
	if kept.Match(escape.ReplaceAll(line, nil)) {
		return string(line)
	}
	return fold(string(line), o.columns)
}

// write writes to the writer below.
func (o *output) write(data []byte) (int, error) {
	if o.err != nil || len(data) == 0 {
		return 0, o.err
	}
	n, err := o.w.Write(data)
	o.err = err
	return n, err
}
