package testbed

import (
	"fmt"
	"io"
	"time"
)

// Progress writes the current step of a build. The zero value writes nothing.
type Progress struct {
	// Out is the output.
	Out io.Writer
	// Steps is the number of steps, and done the number of those that have started.
	Steps, done int
}

// Do runs a step. It writes a line before, because a step takes minutes if the cache is empty, and one with the
// duration after.
func (p *Progress) Do(what string, build func() error) error {
	if p.Out == nil {
		return build()
	}
	p.done++
	_, _ = fmt.Fprintf(p.Out, "%d of %d: building %s or reading it from the cache\n", p.done, p.Steps, what)
	began := time.Now()
	if err := build(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.Out, "%d of %d: %s is ready after %d s\n", p.done, p.Steps, what, int(time.Since(began).Seconds()))
	return nil
}
