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

// isTerminal says whether a person watches what is written.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// wantsColor says whether to use colours: on a terminal, unless NO_COLOR asks for none. An empty
// NO_COLOR asks for nothing.
// Source: no-color.org.
func wantsColor(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && isTerminal(w) && os.Getenv("TERM") != "dumb"
}

// errorPrefix leads in an error, in colour where colours are wanted.
func errorPrefix(w io.Writer) string {
	const prefix = "error: "
	if !wantsColor(w) {
		return prefix
	}
	red := color.New(color.FgRed, color.Bold)
	red.EnableColor()
	return red.Sprint(prefix)
}

// patience is how long a step may take before its progress is shown on a terminal, and logPatience in a log; tests have
// less.
var (
	patience    = time.Second
	logPatience = 5 * time.Second
)

// progress shows what is being done once it takes longer than patience. On anything but a terminal
// it says what is waited for, and writes a line for each step that takes longer than logPatience.
type progress struct {
	// out is where lines are written that nobody may miss; nil where the bar shows them.
	out   io.Writer
	mu    sync.Mutex
	doing string
	// late writes the line of the step in a log.
	late *time.Timer
	bar  *progressbar.ProgressBar
	stop chan struct{}
	done sync.WaitGroup
}

// newProgress returns a progress that shows itself on w. Call close before anything else is written there.
func newProgress(w io.Writer) *progress {
	p := &progress{stop: make(chan struct{})}
	if !isTerminal(w) {
		p.out = w
		return p
	}
	p.done.Go(func() { p.run(w) })
	return p
}

// show tells what is being done now.
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

// stopLate keeps the line of a step that has ended from being written.
func (p *progress) stopLate() {
	if p.late != nil {
		p.late.Stop()
	}
}

// report tells what is waited for. In a log, where no bar is, it is a line of its own: a pipeline that
// waits for a server says so.
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
		// The bar's own clock would go on drawing, unguarded, after close; the one below does not.
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

// close takes the progress off the screen.
func (p *progress) close() {
	p.mu.Lock()
	p.doing = ""
	p.stopLate()
	p.mu.Unlock()
	close(p.stop)
	p.done.Wait()
}
