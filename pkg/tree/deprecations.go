package tree

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// deprecation matches a warning of kustomize about a field.
var deprecation = regexp.MustCompile(`(?m)^# Warning: '(\w+)' is deprecated\..*\n?`)

// countDeprecations calls run, and counts kustomize's warnings about deprecated fields, which kustomize only prints to
// the standard error. It forwards other output. The caller must have locked kustomizeState.
func (t *Tree) countDeprecations(run func()) {
	read, write, err := os.Pipe()
	if err != nil {
		run() // without a pipe the warnings are printed
		return
	}
	printed := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(read) // a pipe of this process ends when it is closed
		printed <- data
	}()
	stderr := os.Stderr
	os.Stderr = write
	defer func() {
		os.Stderr = stderr
		_ = write.Close()
		data := <-printed
		_ = read.Close()
		for _, match := range deprecation.FindAllSubmatch(data, -1) {
			t.deprecated[string(match[1])]++
		}
		_, _ = stderr.Write(deprecation.ReplaceAll(data, nil))
	}()
	run()
}

// Deprecations summarizes kustomize's warnings about deprecated fields in the builds so far on one line, or returns "".
func (t *Tree) Deprecations() string {
	kustomizeState.Lock()
	defer kustomizeState.Unlock()
	if len(t.deprecated) == 0 {
		return ""
	}
	total := 0
	for _, count := range t.deprecated {
		total += count
	}
	return fmt.Sprintf("kustomize warned %d times about deprecated fields: %s", total, strings.Join(slices.Sorted(maps.Keys(t.deprecated)), ", "))
}
