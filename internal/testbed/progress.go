package testbed

import (
	"fmt"
	"io"
	"time"
)

// Progress writes what is built, and how far it is. The zero value writes nothing.
type Progress struct {
	// Out is what is written to.
	Out io.Writer
	// Steps is how many steps there are, and done how many have ended.
	Steps, done int
}

// Do builds something. It writes a line at the beginning, because a step takes minutes where nothing is in the cache,
// and one at the end with the seconds that it took.
func (p *Progress) Do(what string, build func() error) error {
	if p.Out == nil {
		return build()
	}
	p.done++
	_, _ = fmt.Fprintf(p.Out, "%d of %d: building %s, or taking it from the cache\n", p.done, p.Steps, what)
	began := time.Now()
	if err := build(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.Out, "%d of %d: %s is there after %d s\n", p.done, p.Steps, what, int(time.Since(began).Seconds()))
	return nil
}
