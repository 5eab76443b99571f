package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPublishFlagNames checks that users see flags in place of the options in messages of pkg/publish.
func TestPublishFlagNames(t *testing.T) {
	flags := newPublishCommand().Flags()
	option := regexp.MustCompile(`Options\.[A-Z]\w+`)
	quoted := regexp.MustCompile(`"[^"]*"`)
	root := filepath.Join("..", "..", "pkg", "publish")
	checked := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, text := range quoted.FindAllString(string(data), -1) {
			for _, name := range option.FindAllString(text, -1) {
				checked[name] = true
				flag, ok := strings.CutPrefix(publishFlagNames.Replace(name), "--")
				if !ok || flags.Lookup(flag) == nil {
					t.Errorf("%s: %s is replaced with %q, which is not a flag", path, name, flag)
				}
			}
		}
		return err
	})
	if err != nil || len(checked) < 5 {
		t.Errorf("checked %v: %v", checked, err)
	}
	for flag, args := range map[string][]string{
		"--commit": {"--commit", "x"}, "--token-file": {"--token-file", "x"}, "--draft": {"--draft"}, "--notes-from": {"--notes-from", "x"},
		"--sign-key": {"--sign-key", "x"}, "--no-provenance": {"--no-provenance"}, "--gitlab-release": {"--gitlab-release"},
	} {
		requireFailure(t, execute(t, append([]string{"publish", "out/release", "--to", "repository"}, args...)...), exitUsage, flag)
	}
}
