package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

var (
	yamlBlock   = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	toolCommand = regexp.MustCompile(`(?m)clusterctl-release"? (build|publish|verify|check) ([^\n'` + "`" + `]*)`)
)

// requireCommands fails the test unless all commands of the tool in a text exist, and returns their number.
func requireCommands(t *testing.T, text string) int {
	t.Helper()
	commands := toolCommand.FindAllStringSubmatch(text, -1)
	for _, found := range commands {
		args := strings.Fields(strings.ReplaceAll(found[2], `"`, ""))
		cmd, _, err := newRootCommand().Find([]string{found[1]})
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateRequiredFlags()
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", found[0], err)
		}
	}
	return len(commands)
}

// TestPipelines checks that the pipelines of the docs and the action are YAML with existing commands.
func TestPipelines(t *testing.T) {
	root := pinned.Root(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "pipelines.md"))
	if err != nil {
		t.Fatal(err)
	}
	action, err := os.ReadFile(filepath.Join(root, "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(action)}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		texts = append(texts, block[1])
	}
	for _, text := range texts {
		requireYAML(t, text)
	}
	commands := requireCommands(t, strings.Join(texts, "\n")+string(page))
	if len(texts) != 4 || commands < 7 {
		t.Errorf("found only %d texts and %d commands", len(texts), commands)
	}
	// The action must declare the inputs that it uses.
	var parsed struct {
		Inputs map[string]any `json:"inputs"`
	}
	if err := yaml.Unmarshal(action, &parsed); err != nil {
		t.Fatal(err)
	}
	if _, ok := parsed.Inputs["commit"]; !ok {
		t.Error("the action has no input commit")
	}
	for _, used := range regexp.MustCompile(`inputs\.([a-z-]+)`).FindAllStringSubmatch(string(action), -1) {
		if _, ok := parsed.Inputs[used[1]]; !ok {
			t.Errorf("the action has no input %s", used[1])
		}
	}
}
