package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// onTerminal calls f with a pseudo terminal and returns the text that f writes to it.
func onTerminal(t *testing.T, f func(terminal *os.File)) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("this test needs pseudo terminals: %v", err)
	}
	defer func() { _ = master.Close() }() // it has no unwritten data
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

// TestFoldedOnTerminal checks that lines for a terminal have at most 80 columns, except lines to copy, and that a pipe
// gets the same words in unfolded lines.
func TestFoldedOnTerminal(t *testing.T) {
	const columns = 80
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	dir := inDemo(t)
	treetest.Write(t, dir, map[string]string{"dump.yaml": "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: demo, namespace: demo, uid: demo}\n"})
	succeed(t, "build", "--version", "v0.1.0")
	long := 0
	for _, line := range []string{
		"help", "check --help", "move-plan --help", "init --force",
		"check out/release --fail-on note", "check --list", "check --explain image-canonical", "verify out/release/infrastructure-demo/v0.1.0",
		"contract out/release", "diff out/release out/release", "graph dump.yaml", "move-plan dump.yaml", "metadata check",
		"templates variables out/release/infrastructure-demo/v0.1.0",
		// YAML is not folded.
		"templates render out/release/infrastructure-demo/v0.1.0 --flavor topology --set CLUSTER_NAME=demo --set KUBERNETES_VERSION=v1.36.3",
	} {
		t.Run(line, func(t *testing.T) {
			piped := execute(t, strings.Fields(line)...)
			got := onTerminal(t, func(terminal *os.File) {
				size := &unix.Winsize{Row: 24, Col: columns}
				if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, size); err != nil {
					t.Fatal(err)
				}
				var stderr bytes.Buffer
				if status := run(t.Context(), strings.Fields(line), terminal, &stderr); status != piped.status {
					t.Errorf("status %d, want %d: %s", status, piped.status, stderr.String())
				}
			})
			text := escape.ReplaceAllString(strings.ReplaceAll(got, "\r", ""), "")
			if diff := cmp.Diff(strings.Fields(piped.stdout), strings.Fields(text)); diff != "" {
				t.Errorf("a terminal gets other words (-pipe +terminal):\n%s", diff)
			}
			if strings.HasPrefix(line, "templates render") {
				if text != piped.stdout {
					t.Errorf("the YAML is folded:\n%s", text)
				}
				return
			}
			for one := range strings.Lines(text) {
				if one = strings.TrimRight(one, "\n"); utf8.RuneCountInString(one) > columns && !kept.MatchString(one) {
					t.Errorf("%d columns: %s", utf8.RuneCountInString(one), one)
				}
			}
			for one := range strings.Lines(piped.stdout) {
				if utf8.RuneCountInString(one) > columns+1 {
					long++
				}
			}
		})
	}
	if long < 20 {
		t.Errorf("only %d lines needed folding", long)
	}
}

func TestFold(t *testing.T) {
	for _, tc := range []struct{ name, line, want string }{
		{"short", "  one two", "  one two"},
		{"between words", "  one two three four", "  one two three\n    four"},
		{"at a column", "  no  there  one two three", "  no  there  one\n      two three"},
		{"code", "add `one two three` to it", "add\n`one two three` to\nit"},
		{"a long word", "at /a/path/longer/than/that now", "at\n/a/path/longer/than/that\nnow"},
		{"colour", "\x1b[31mone\x1b[0m two three four five", "\x1b[31mone\x1b[0m two three four\nfive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := fold(tc.line, 18); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestColour(t *testing.T) {
	const escape = "\x1b["
	for _, tc := range []struct {
		name          string
		noColor, term string
		coloured      bool
	}{
		{"a terminal", "", "xterm", true},
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
				t.Errorf("the output is coloured: %v, want %v: %q", !tc.coloured, tc.coloured, got)
			}
			if !strings.Contains(got, "error: ") || !strings.Contains(got, `required flag(s) "output" not set`) {
				t.Errorf("wrote %q", got)
			}
			if tc.coloured && !strings.Contains(got, escape+"0") && !strings.Contains(got, escape+"22") {
				t.Errorf("the colour is not reset: %q", got)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	before := []time.Duration{patience, logPatience}
	defer func() { patience, logPatience = before[0], before[1] }()
	show := func(w io.Writer, takes time.Duration) {
		p := newProgress(w)
		p.show("building demo")
		time.Sleep(takes)
		p.show("building another")
		p.close()
	}

	// A quick step shows nothing, even on a terminal.
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

	// The log of a pipeline gets a line for a slow step.
	logPatience = 10 * time.Millisecond
	show(&pipe, 500*time.Millisecond)
	if got := pipe.String(); !strings.HasPrefix(got, "building demo\n") {
		t.Errorf("a log got %q", got)
	}
}
