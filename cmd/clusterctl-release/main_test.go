package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// outcome is the result of a command line.
type outcome struct {
	status         int
	stdout, stderr string
}

// execute runs a command line in this process.
func execute(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), args, &stdout, &stderr)
	for what, text := range map[string]string{"standard output": stdout.String(), "standard error": stderr.String()} {
		if strings.ContainsRune(text, '\x1b') {
			t.Errorf("%v: %s isn't a terminal, but has an escape sequence: %q", args, what, text)
		}
	}
	return outcome{status, stdout.String(), stderr.String()}
}

// succeed runs a command line and returns its standard output. The test fails if the command fails.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	got := execute(t, args...)
	if got.status != exitFine {
		t.Fatalf("%v: status %d: %s", args, got.status, got.stderr)
	}
	return got.stdout
}

// requireFailure checks that a command line failed with a status and an error with these texts, and
// that it printed nothing else.
func requireFailure(t *testing.T, got outcome, status int, want ...string) {
	t.Helper()
	if got.status != status {
		t.Errorf("status %d, want %d", got.status, status)
	}
	if got.stdout != "" {
		t.Errorf("a failed command printed %q", got.stdout)
	}
	if !strings.HasPrefix(got.stderr, "error: ") && !strings.Contains(got.stderr, "\nerror: ") { // notes may come first
		t.Errorf("the error does not begin with %q: %q", "error: ", got.stderr)
	}
	for _, text := range want {
		if !strings.Contains(got.stderr, text) {
			t.Errorf("the error does not have %q: %s", text, got.stderr)
		}
	}
	for _, noise := range []string{"Usage:", "goroutine ", ".go:", "%!"} {
		if strings.Contains(got.stderr, noise) {
			t.Errorf("the error has the unwanted %q: %s", noise, got.stderr)
		}
	}
}

// inDemo copies the demo provider's tree, makes the copy the working folder, and returns its path.
func inDemo(t *testing.T) string {
	t.Helper()
	dir := treetest.Demo(t)
	t.Chdir(dir)
	return dir
}

func TestUsageErrors(t *testing.T) {
	inDemo(t)
	for _, tc := range []struct {
		line string
		want []string
	}{
		{"biuld", []string{`unknown command "biuld"`, "do you mean build?", "clusterctl release --help"}},
		{"metadata shwo", []string{`unknown command "shwo"`, "do you mean show?", "clusterctl release metadata --help"}},
		{"build --versions v0.1.0", []string{"unknown flag: --versions", "Run 'clusterctl release build --help'"}},
		{"build", []string{"no version given", "not in a git repository", "set --version vX.Y.Z"}},
		{"build --version", []string{"flag needs an argument: --version"}},
		{"build --version v0.1.0 config", []string{`"config"`}},
		{"build --version 0.1.0", []string{`version "0.1.0" lacks the leading v`, "v0.1.0"}},
		{"build --version v0.1", []string{`"v0.1" isn't a semantic version`, "vMAJOR.MINOR.PATCH"}},
		{"build --version latest", []string{`"latest" isn't a semantic version`, "e.g. v0.1.0"}},
		{"build --version v0.1.0/..", []string{"isn't a semantic version"}},
		{"build --version v0.1.0 --image controller", []string{"--image controller", "NAME=REFERENCE"}},
		{"build --version v0.1.0 --image a=b --image a=c", []string{"--image a is given twice"}},
		{"build --version v0.1.0 --image other=registry.example.com/x", []string{"--image other=registry.example.com/x", `no container of infrastructure-demo has an image called "other"`}},
		{"build --version v0.1.0 --provider infrastructure-x", []string{"no provider infrastructure-x in clusterctl-release.yaml", "it has infrastructure-demo"}},
		{"publish --to repository", []string{"requires at least 1 arg", "Run 'clusterctl release publish --help'"}},
		{"publish out/release", []string{`required flag(s) "to" not set`}},
		{"publish out/release --to s3://bucket", []string{`"s3://bucket" isn't a place to publish to`, "overrides"}},
		{"fetch --output copy", []string{"requires at least 1 arg"}},
		{"fetch out/release", []string{`required flag(s) "output" not set`}},
		{"init a b", []string{"accepts at most 1 arg", "Run 'clusterctl release init --help'"}},
		{"version now", []string{`"now"`, "clusterctl release version --help"}},
		{"schema of", []string{`"of"`}},
		{"metadata add --version v0.1.0", []string{`required flag(s) "contract" not set`}},
		{"metadata add --version 0.2.0 --contract v1beta2", []string{`"0.2.0" lacks the leading v`}},
		{"metadata add --version v0.2.0 --contract v1beta9", []string{`"v1beta9"`, "v1beta2"}},
	} {
		t.Run(tc.line, func(t *testing.T) {
			requireFailure(t, execute(t, strings.Fields(tc.line)...), exitUsage, tc.want...)
		})
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("a wrong command line created a folder")
	}
}

// TestFindings checks that a command with findings returns its own status and a report instead of an
// error.
func TestFindings(t *testing.T) {
	dir := inDemo(t)
	if out := succeed(t, "metadata", "check"); !strings.Contains(out, "metadata.yaml: 1 series, no problems") {
		t.Errorf("a good file: %s", out)
	}
	treetest.Write(t, dir, map[string]string{"metadata.yaml": "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\nreleaseSeries:\n" +
		"- {major: 0, minor: 1, contract: v1beta2}\n- {major: 0, minor: 1, contract: v1beta1}\n"})
	got := execute(t, "metadata", "check")
	if got.status != exitFindings || !strings.Contains(got.stdout, "metadata.yaml:5: ") || strings.Contains(got.stderr, "error: ") {
		t.Errorf("a series twice: status %d, %q, %q", got.status, got.stdout, got.stderr)
	}
}

// TestBadReleaseIsNotPublished checks that the report of the checks precedes the error, and that nothing is written.
func TestBadReleaseIsNotPublished(t *testing.T) {
	dir := inDemo(t)
	treetest.Write(t, dir, map[string]string{"half/infrastructure-demo/v0.1.0/metadata.yaml": "x"})
	got := execute(t, "publish", "half", "--to", "repository")
	if got.status != exitFindings || got.stdout != "" {
		t.Errorf("status %d, standard output %q", got.status, got.stdout)
	}
	for _, want := range []string{"infrastructure-components.yaml is missing", "infrastructure-demo/v0.1.0/metadata.yaml", "fix: ", "error: the release has errors, and nothing was done"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("the report does not have %q: %s", want, got.stderr)
		}
	}
	if created := listing(t, "repository"); created != nil {
		t.Errorf("a refused release created %v", created)
	}
}

func TestInterrupted(t *testing.T) {
	inDemo(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, line := range []string{"build --version v0.1.0", "init --force"} {
		var stdout, stderr bytes.Buffer
		status := run(ctx, strings.Fields(line), &stdout, &stderr)
		requireFailure(t, outcome{status, stdout.String(), stderr.String()}, exitFailed, "interrupted")
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("an interrupted build created a folder")
	}
}

// eachCommand calls f for every command except those of cobra.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, f)
	}
}

func TestHelp(t *testing.T) {
	eachCommand(newRootCommand(), func(cmd *cobra.Command) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.Short == "" {
				t.Error("no short text")
			}
			if !strings.Contains(cmd.Example, "clusterctl release ") {
				t.Errorf("the example has no command line of clusterctl: %q", cmd.Example)
			}
			path := strings.Fields(cmd.CommandPath())[2:] // after "clusterctl release"
			help := succeed(t, append(path, "--help")...)
			for _, want := range []string{"Usage:\n  " + cmd.CommandPath(), "Examples:"} {
				if !strings.Contains(help, want) {
					t.Errorf("the help does not have %q:\n%s", want, help)
				}
			}
			if viaHelp := succeed(t, append([]string{"help"}, path...)...); viaHelp != help {
				t.Errorf("'help %s' differs from --help", strings.Join(path, " "))
			}
			for _, line := range strings.Split(help, "\n") {
				if strings.TrimRight(line, " \t") != line {
					t.Errorf("a line ends in blanks: %q", line)
				}
			}
		})
	})
	if bare, help := succeed(t), succeed(t, "--help"); bare != help {
		t.Errorf("without arguments it prints %q", bare)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := succeed(t, "completion", shell); !strings.Contains(out, "clusterctl-release") {
			t.Errorf("completion %s: %q", shell, out)
		}
	}
}

func TestVersion(t *testing.T) {
	if out := succeed(t, "version"); !strings.HasPrefix(out, "clusterctl-release v") {
		t.Errorf("version prints %q", out)
	}
	version = "v1.2.3"
	defer func() { version = "" }()
	if out := succeed(t, "version"); !strings.HasPrefix(out, "clusterctl-release v1.2.3") {
		t.Errorf("a stamped version prints %q", out)
	}
}

func TestSchema(t *testing.T) {
	if out := succeed(t, "schema"); !strings.Contains(out, `"clusterClasses"`) {
		t.Errorf("schema prints %q", out)
	}
}

// listing returns the files below a folder with their bytes; nil if the folder is missing.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	if _, err := os.Lstat(dir); os.IsNotExist(err) {
		return nil
	}
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
