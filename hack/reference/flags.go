package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

var (
	// flagLine matches the first line of a flag in the output of --help: its name, type and text.
	flagLine = regexp.MustCompile(`^ {2,6}(?:-\w, )?--([\w-]+)(?: (\S+))? {2,}(.*)$`)
	// flagDefault matches the default at the end of a flag's text.
	flagDefault = regexp.MustCompile(` \(default (.*)\)$`)
)

// flagsPage returns the manager's flags, as its --help prints them.
func flagsPage() (string, error) {
	cmd := exec.Command("go", "run", "./provider", "--help")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	// With --help, the manager's exit status reports that it didn't start.
	var status *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &status) {
		return "", fmt.Errorf("running the manager: %w", err)
	}
	var rows [][]string
	for line := range strings.Lines(stderr.String()) {
		line = strings.TrimRight(line, "\n")
		if match := flagLine.FindStringSubmatch(line); match != nil {
			rows = append(rows, []string{code("--" + match[1]), match[2], "", match[3]})
		} else if len(rows) > 0 && strings.HasPrefix(line, "        ") {
			rows[len(rows)-1][3] += " " + strings.TrimSpace(line)
		}
	}
	if len(rows) < 20 {
		return "", fmt.Errorf("the manager printed %d flags only:\n%s", len(rows), stderr.String())
	}
	for _, row := range rows {
		if match := flagDefault.FindStringSubmatch(row[3]); match != nil {
			row[2], row[3] = code(strings.Trim(match[1], `"`)), strings.TrimSuffix(row[3], match[0])
		}
		row[3] = plain(row[3])
	}
	return "# Flags of the manager\n\n" + generated + "\nThe release sets some of them by [variables of clusterctl](variables.md#variables-of-the-components).\n\n" +
		table([]string{"flag", "type", "default", "meaning"}, rows), nil
}
