package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/fatih/color"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// wantsColor reports whether to use colours: on a terminal, unless NO_COLOR is set and not empty.
//
// Source: no-color.org.
func wantsColor(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(w) && os.Getenv("TERM") != "dumb"
}

// errorPrefix starts an error message, in colour if wanted.
func errorPrefix(w io.Writer) string {
	const prefix = "error: "
	if !wantsColor(w) {
		return prefix
	}
	red := color.New(color.FgRed, color.Bold)
	red.EnableColor()
	return red.Sprint(prefix)
}

// patience is the time until the progress of a step is shown on a terminal, and logPatience the time for a log; tests
// use shorter times.
var (
	patience    = time.Second
	logPatience = 5 * time.Second
)

// progress shows the current step when it takes longer than patience. If the writer isn't a terminal, it writes what it
// waits for, and a line for each step that takes longer than logPatience.
type progress struct {
	// out receives lines that must not be missed; nil if the bar shows them.
	out   io.Writer
	mu    sync.Mutex
	doing string
	// late writes the line of a slow step to a log.
	late *time.Timer
	bar  *progressbar.ProgressBar
	stop chan struct{}
	done sync.WaitGroup
}

// newProgress returns a progress that writes to w. Call close before anything else is written there.
func newProgress(w io.Writer) *progress {
	p := &progress{stop: make(chan struct{})}
	if !isTerminal(w) {
		p.out = w
		return p
	}
	p.done.Go(func() { p.run(w) })
	return p
}

// show sets the current step.
func (p *progress) show(doing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = doing
	if p.bar != nil {
		p.bar.Describe(doing)
	}
	if p.out == nil {
		return
	}
	p.stopLate()
	p.late = time.AfterFunc(logPatience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.doing == doing {
			fmt.Fprintln(p.out, doing)
		}
	})
}

// stopLate prevents the line of a step that has ended.
func (p *progress) stopLate() {
	if p.late != nil {
		p.late.Stop()
	}
}

// report shows what the program waits for. In a log, which has no bar, it writes a line: a pipeline that waits for a
// server says so.
func (p *progress) report(waiting string) {
	if p.out == nil {
		p.show(waiting)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, waiting)
}

// run draws until close is called.
func (p *progress) run(w io.Writer) {
	select {
	case <-p.stop:
		return
	case <-time.After(patience):
	}
	p.mu.Lock()
	p.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(p.doing),
		progressbar.OptionSpinnerType(14), progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
		// The bar's own clock would keep drawing, without the lock, after close; the clock below does not.
		progressbar.OptionSetSpinnerChangeInterval(0))
	p.mu.Unlock()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			_ = p.bar.Finish()
			return
		case <-tick.C:
			_ = p.bar.Add(1)
		}
	}
}

// close removes the progress from the screen.
func (p *progress) close() {
	p.mu.Lock()
	p.doing = ""
	p.stopLate()
	p.mu.Unlock()
	close(p.stop)
	p.done.Wait()
}
