package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// printing lists command lines with output, at least one for every command. Each needs the results of the
// lines before it.
var printing = []string{
	"",
	"help",
	"build --help",
	"init --output -",
	"build --version v0.1.0",
	"check out/release --fail-on note",
	"check out/release --format json",
	"check out/release --format github",
	"check out/release --format sarif",
	"check out/release --format gitlab",
	"check out/release --format junit",
	"check out/release --format html",
	"check --dump dump.yaml",
	"check --list",
	"check --explain image-canonical",
	"contract out/release",
	"contract out/release --format json",
	"contract out/release --format markdown",
	"diff out/release out/release",
	"diff out/release out/release --format json",
	"diff out/release out/release --format markdown",
	"graph dump.yaml",
	"graph dump.yaml --format json",
	"graph dump.yaml --format dot",
	"graph dump.yaml --format mermaid",
	"graph dump.yaml --format svg",
	"graph dump.yaml --format html",
	"move-plan dump.yaml",
	"move-plan dump.yaml --format json",
	"templates",
	"templates variables out/release/infrastructure-demo/v0.1.0",
	"templates variables out/release/infrastructure-demo/v0.1.0 --format json",
	"templates render out/release/infrastructure-demo/v0.1.0 --flavor topology --set CLUSTER_NAME=demo --set KUBERNETES_VERSION=v1.36.3",
	"templates expand out/release/infrastructure-demo/v0.1.0 --flavor topology --set CLUSTER_NAME=demo --set KUBERNETES_VERSION=v1.36.3",
	"metadata",
	"metadata show",
	"metadata check",
	"metadata add --version v0.2.0 --contract v1beta2",
	"publish out/release --to repository --plan",
	"publish out/release --to repository",
	"fetch repository --output copy",
	"verify repository/infrastructure-demo/v0.1.0",
	"mirror --provider infrastructure-demo:v0.1.0 --clusterctl-config source/clusterctl.yaml --to mirror",
	"mirror push mirror --registry REGISTRY/site",
	"mirror verify mirror",
	"init --force",
	"schema",
	"version",
	"man pages",
	"completion bash",
	"completion zsh",
	"completion fish",
	"completion powershell",
}

// fullDisk is a writer that always fails.
type fullDisk struct{}

var errFull = errors.New("no space left on device")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

// TestOutputThatCannotBeWritten checks that every command fails, and doesn't report findings, if its output can't be
// written.
func TestOutputThatCannotBeWritten(t *testing.T) {
	dir := inDemo(t)
	registry := mirrorSource(t)
	treetest.Write(t, dir, map[string]string{"dump.yaml": "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: demo, namespace: demo, uid: demo}\n"})
	missing := map[string]bool{}
	eachCommand(newRootCommand(), func(cmd *cobra.Command) {
		missing[strings.Join(strings.Fields(cmd.CommandPath())[2:], " ")] = true
	})
	for _, line := range printing {
		args := strings.Fields(strings.Replace(line, "REGISTRY", registry, 1))
		cmd, _, err := newRootCommand().Find(args)
		if err == nil {
			delete(missing, strings.Join(strings.Fields(cmd.CommandPath())[2:], " "))
		}
		t.Run(line, func(t *testing.T) {
			if got := execute(t, args...); got.stdout == "" || got.status > exitFindings {
				t.Fatalf("without a fault: status %d, %d bytes of output: %s", got.status, len(got.stdout), got.stderr)
			}
			var stderr bytes.Buffer
			status := run(t.Context(), args, fullDisk{}, &stderr)
			requireFailure(t, outcome{status: status, stderr: stderr.String()}, exitFailed, errFull.Error())
			if n := strings.Count(stderr.String(), errFull.Error()); n != 1 {
				t.Errorf("the error is printed %d times, want once: %s", n, stderr.String())
			}
		})
	}
	for path := range missing {
		t.Errorf("no command line runs the command %q", path)
	}
}
