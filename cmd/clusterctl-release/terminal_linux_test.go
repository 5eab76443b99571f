package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onTerminal calls f with a pseudo terminal and returns what was written to it.
func onTerminal(t *testing.T, f func(terminal *os.File)) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("this test needs pseudo terminals: %v", err)
	}
	defer func() { _ = master.Close() }() // nothing is kept in it
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan string)
	go func() {
		data, _ := io.ReadAll(master) // ends with an error once the other side is closed
		written <- string(data)
	}()
	f(terminal)
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	return <-written
}

func TestColour(t *testing.T) {
	const escape = "\x1b["
	for _, tc := range []struct {
		name          string
		noColor, term string
		coloured      bool
	}{
		{"as it is", "", "xterm", true},
		{"NO_COLOR", "1", "xterm", false},
		{"a dumb terminal", "", "dumb", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tc.noColor)
			t.Setenv("TERM", tc.term)
			var stdout bytes.Buffer
			got := onTerminal(t, func(terminal *os.File) {
				if status := run(t.Context(), []string{"fetch", "x"}, &stdout, terminal); status != exitUsage {
					t.Errorf("status %d, want %d", status, exitUsage)
				}
			})
			if strings.Contains(got, escape) != tc.coloured {
				t.Errorf("coloured is %v, want %v: %q", !tc.coloured, tc.coloured, got)
			}
			if !strings.Contains(got, "error: ") || !strings.Contains(got, `required flag(s) "output" not set`) {
				t.Errorf("wrote %q", got)
			}
			if tc.coloured && !strings.Contains(got, escape+"0") && !strings.Contains(got, escape+"22") {
				t.Errorf("the colour is not ended: %q", got)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	before := patience
	defer func() { patience = before }()
	show := func(w io.Writer, takes time.Duration) {
		p := newProgress(w)
		p.show("building demo")
		time.Sleep(takes)
		p.show("building another")
		p.close()
	}

	// A quick step shows nothing, on a terminal either.
	if got := onTerminal(t, func(terminal *os.File) { show(terminal, 0) }); got != "" {
		t.Errorf("a quick step showed %q", got)
	}

	patience = 10 * time.Millisecond
	got := onTerminal(t, func(terminal *os.File) { show(terminal, 500*time.Millisecond) })
	if !strings.Contains(got, "building demo") {
		t.Errorf("a slow step showed %q", got)
	}
	if last := got[strings.LastIndexByte(strings.TrimRight(got, "\r"), '\r')+1:]; strings.TrimSpace(last) != "" {
		t.Errorf("the progress is still on the screen: %q", last)
	}
	var pipe bytes.Buffer
	show(&pipe, 50*time.Millisecond)
	if pipe.Len() > 0 {
		t.Errorf("a pipe got %q", pipe.String())
	}
}
