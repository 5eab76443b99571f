package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/checks/catalog"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/diff"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/move/draw"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/report"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// stableFile lists the promises of the stability page: commands, flags, exit statuses, formats, checks, and the fields
// of the JSON schemas and the release file.
const stableFile = "testdata/stable.txt"

// completeList is set for releases of the tool: the list must then be complete.
var completeList = flag.Bool("stable.complete", false, "fail where "+stableFile+" lacks what the tool has")

// TestStable checks that everything in the list of the newest release still exists. `make stable` updates the list.
func TestStable(t *testing.T) {
	now := promises(t)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(stableFile, []byte(strings.Join(slices.Sorted(maps.Keys(now)), "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promised, err := os.ReadFile(stableFile)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(promised), "\n"); lines < 300 {
		t.Errorf("%s has only %d lines", stableFile, lines)
	}
	removed, unlisted := comparePromises(string(promised), now)
	for _, line := range removed {
		t.Errorf("%q was removed, but docs/reference/stability.md promises to keep it", line)
	}
	if *completeList && len(unlisted) > 0 {
		t.Errorf("%s is from an older release: run `make stable` and commit it; it lacks\n%s", stableFile, strings.Join(unlisted, "\n"))
	}
}

// comparePromises returns the lines of the list that were removed from the tool, and the lines that the list lacks.
func comparePromises(list string, now map[string]bool) (removed, unlisted []string) {
	lines := strings.Split(strings.TrimSpace(list), "\n")
	for _, line := range lines {
		if !now[line] {
			removed = append(removed, line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(now)) {
		if !slices.Contains(lines, line) {
			unlisted = append(unlisted, line)
		}
	}
	return removed, unlisted
}

// TestStableAtRelease checks that `make dist` fails with a list from an older release.
func TestStableAtRelease(t *testing.T) {
	planned := planOf(t, "dist")
	if check, build := strings.Index(planned, "-run '^TestStable$' -count=1 -args -stable.complete"), strings.Index(planned, "go run ./hack/dist"); check < 0 || build < check {
		t.Errorf("make dist runs\n%s\nwant TestStable with -stable.complete first", planned)
	}
	removed, unlisted := comparePromises("check\ndiff\n", map[string]bool{"check": true, "graph": true})
	if !slices.Equal(removed, []string{"diff"}) || !slices.Equal(unlisted, []string{"graph"}) {
		t.Errorf("comparePromises = %q, %q; want diff removed and graph unlisted", removed, unlisted)
	}
}

// planOf returns the commands of a target of the Makefile.
func planOf(t *testing.T, args ...string) string {
	t.Helper()
	planned, err := exec.CommandContext(t.Context(), "make", append([]string{"-C", repository, "-n", "--no-print-directory"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(planned))
}

// promises returns a line for each promise of the stability page that the tool now keeps.
func promises(t *testing.T) map[string]bool {
	t.Helper()
	now := map[string]bool{
		fmt.Sprintf("exit status %d: success", exitFine): true, fmt.Sprintf("exit status %d: findings", exitFindings): true,
		fmt.Sprintf("exit status %d: wrong usage", exitUsage): true, fmt.Sprintf("exit status %d: other failures", exitFailed): true,
	}
	eachCommand(newRootCommand(), func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		now[cmd.CommandPath()] = true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { now[fmt.Sprintf("%s --%s %s", cmd.CommandPath(), f.Name, f.Value.Type())] = true })
	})
	for command, formats := range map[string][]string{
		"check": report.Formats.Names(), "contract": contract.Formats.Names(), "diff": diff.Formats.Names(), "graph": draw.Formats.Names(),
	} {
		for _, format := range formats {
			now[command+" --format "+format] = true
		}
	}
	for command, parse := range map[string]func(string) error{"move-plan": move.Formats.Parse, "templates variables": templates.Formats.Parse} {
		for _, format := range []string{"text", "json"} {
			now[command+" --format "+format] = parse(format) == nil
		}
	}
	for _, check := range catalog.All() {
		now["check "+check.ID] = true
	}
	for _, name := range []string{"report", "diff", "graph", "move-plan"} {
		data, err := os.ReadFile(filepath.Join(repository, "docs", name+".schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		addFields(t, now, name+".schema.json", data)
	}
	addFields(t, now, release.ConfigFile, release.ConfigSchema())
	return now
}

// addFields adds the fields of a JSON schema, with their types.
func addFields(t *testing.T, fields map[string]bool, name string, schema []byte) {
	t.Helper()
	var document struct {
		Ref  string                    `json:"$ref"`
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(schema, &document); err != nil {
		t.Fatal(err)
	}
	var add func(path string, of map[string]any, above []string)
	add = func(path string, of map[string]any, above []string) {
		if ref, ok := of["$ref"].(string); ok {
			if slices.Contains(above, ref) {
				return // schemas may be recursive
			}
			add(path, document.Defs[strings.TrimPrefix(ref, "#/$defs/")], append(slices.Clone(above), ref))
			return
		}
		if items, ok := of["items"].(map[string]any); ok {
			add(path+"[]", items, above)
			return
		}
		properties, ok := of["properties"].(map[string]any)
		if !ok {
			kind, ok := of["type"].(string)
			if !ok {
				kind = "any"
			}
			fields[fmt.Sprintf("%s %s %s", name, path, kind)] = true
			return
		}
		for field, property := range properties {
			add(strings.TrimPrefix(path+"."+field, "."), property.(map[string]any), above)
		}
	}
	add("", map[string]any{"$ref": document.Ref}, nil)
}

// TestChangelog runs the command of `make changelog`. It adds the entry of a version above the others, and replaces it
// when it runs again. An unreadable release changes nothing.
func TestChangelog(t *testing.T) {
	planned := planOf(t, "changelog", "PREVIOUS=before", "VERSION=v0.2.0")
	const command = `hack/changelog bin/clusterctl-release "before" out/release/infrastructure-libvirt/v0.2.0 docs/reference/changelog.md`
	if !strings.HasSuffix(planned, command) {
		t.Errorf("make changelog runs\n%s\nwant it to end with\n%s", planned, command)
	}
	script, err := filepath.Abs(filepath.Join(repository, "hack", "changelog"))
	if err != nil {
		t.Fatal(err)
	}
	dir := inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	succeed(t, "metadata", "add", "--version", "v0.2.0", "--contract", "v1beta2")
	succeed(t, "build", "--version", "v0.2.0")
	const first = "## v0.1.0\n\nThe first release.\n"
	treetest.Write(t, dir, map[string]string{"changelog.md": "# Changelog\n\nThe newest first.\n\n" + first})
	write := func(old string) (string, error) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), script, filepath.Join(buildProgram(t), "clusterctl-release"),
			old, "out/release/infrastructure-demo/v0.2.0", "changelog.md").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		text, readErr := os.ReadFile("changelog.md")
		if readErr != nil {
			t.Fatal(readErr)
		}
		return string(text), err
	}
	entry := strings.TrimSpace(succeed(t, "diff", "out/release/infrastructure-demo/v0.1.0", "out/release/infrastructure-demo/v0.2.0", "--format", "markdown"))
	want := "# Changelog\n\nThe newest first.\n\n" + entry + "\n\n" + first
	for range 2 {
		if got, err := write("out/release/infrastructure-demo/v0.1.0"); err != nil || got != want {
			t.Errorf("%v: the changelog is\n%s\nwant\n%s", err, got, want)
		}
	}
	if got, err := write("out/release/infrastructure-demo/v0.0.9"); err == nil || got != want {
		t.Errorf("a release that doesn't exist: %v, and the changelog is\n%s", err, got)
	}
}
