package main

import "io"

// output is standard output, which remembers why it can't be written: most of what prints does not ask.
// Nothing is written after the first error.
type output struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(data)
	o.err = err
	return n, err
}
