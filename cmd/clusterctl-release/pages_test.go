package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/giteaserver"
	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

// guide is a page whose commands a reader runs in order, in one shell.
type guide struct {
	path string
	// commands is the number of the page's commands that the test runs.
	commands int
	// start has the commands that the reader ran before, in a Git repository with the demo provider's tree.
	start string
	// prepare does other preparations with the registry of all hosts; it returns variables of the environment.
	prepare func(t *testing.T, dir string, images http.Handler) []string
	// jobs reports that the commands of pipelines in the page's YAML run, too.
	jobs bool
	// fails has the exit statuses of failing commands, in their order, by their first words.
	fails map[string][]int
	// elsewhere has the reasons for commands that the test doesn't run, by their first words.
	elsewhere map[string]string
}

// step is a command of a page; want is its output on the page, or empty.
type step struct{ command, want string }

var (
	block      = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	fileName   = regexp.MustCompile(`^# ([\w./-]+\.\w+)\n`)
	notes      = regexp.MustCompile(`(?m)^note: .*\n|^.* has generated values .*\n`)
	jobCommand = regexp.MustCompile(`(?m)^ +- (?:run: )?'?((?:clusterctl-release|git|"[^"]*") .*)$`)
	anyText    = regexp.MustCompile(` ?\\\.\\\.\\\.`)
	mark       = regexp.MustCompile(`\n?\x1e(\d+)\x1e\n`)
)

// TestGuides runs the commands of pages and compares their output with the page, where long lines are folded and "..."
// stands for any text. A block is one of these:
//   - console: commands after "$ ", each followed by its output, or by nothing if the page doesn't show it
//   - sh: a script without its output
//   - yaml: a file that the reader writes, if its first line is a comment with the name, or a part of a file
//   - text, mermaid: no commands
func TestGuides(t *testing.T) {
	for _, g := range guides {
		t.Run(g.path, func(t *testing.T) {
			page, err := os.ReadFile(filepath.Join(repository, g.path))
			if err != nil {
				t.Fatal(err)
			}
			script, steps := g.script(t, string(page))
			if len(steps) != g.commands {
				t.Errorf("the page has %d commands to run, want %d", len(steps), g.commands)
			}
			dir := treetest.Demo(t)
			committed(t, dir)
			environ := g.environ(t, dir)
			if g.start != "" {
				runScript(t, dir, environ, "set -e\n"+g.start, []step{{command: g.start}}, nil)
			}
			runScript(t, dir, environ, script, steps, g.fails)
		})
	}
}

// TestGuidesOfBook checks that TestGuides runs all pages of the book about releasing a provider.
func TestGuidesOfBook(t *testing.T) {
	_, after, _ := strings.Cut(pages(t)[filepath.Join(repository, "docs", "README.md")], "### Releasing a provider\n")
	section, _, _ := strings.Cut(after, "\n#")
	links := link.FindAllStringSubmatch(section, -1)
	for _, found := range links {
		if path := "docs/" + found[1]; !slices.ContainsFunc(guides, func(g guide) bool { return g.path == path }) {
			t.Errorf("the commands of %s are not run: add it to guides", path)
		}
	}
	if len(links) < 10 {
		t.Errorf("the section has only %d pages", len(links))
	}
}

// script returns the commands of a page, and a script that runs them.
func (g guide) script(t *testing.T, page string) (string, []step) {
	t.Helper()
	var steps []step
	script, unused := "set -o pipefail\n", maps.Clone(g.elsewhere)
	add := func(s step) {
		if words, ok := prefixOf(s.command, g.elsewhere); ok {
			delete(unused, words)
			return
		}
		steps = append(steps, s)
		script += s.command + "\nprintf '\\n\\036%d\\036\\n' $?\n"
	}
	blocks := block.FindAllStringSubmatch(page, -1)
	if fences := strings.Count(page, "```"); fences != 2*len(blocks) {
		t.Errorf("the page has %d fences and %d blocks that begin and end a line", fences, len(blocks))
	}
	for _, found := range blocks {
		language, text := found[1], found[2]
		name := fileName.FindStringSubmatch(text)
		switch {
		case language == "console":
			before, _, _ := strings.Cut("\n"+text, "\n$ ")
			if before != "" {
				t.Errorf("a block begins with %q, which isn't a command", before)
			}
			for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
				add(newStep(part))
			}
		case language == "sh":
			if words, ok := prefixOf(text, g.elsewhere); ok {
				delete(unused, words)
			} else {
				add(step{command: "(set -e\n" + text + ")"})
			}
		case language == "yaml" && g.jobs:
			for _, command := range jobCommand.FindAllStringSubmatch(text, -1) {
				add(step{command: command[1]})
			}
		case language == "yaml" && name != nil:
			script += fmt.Sprintf("mkdir -p %s && cat > %s <<'END OF FILE'\n%sEND OF FILE\n", filepath.Dir(name[1]), name[1], text)
		case language == "yaml":
			var parsed any
			if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
				t.Errorf("%v:\n%s", err, text)
			}
		case language != "text" && language != "mermaid":
			t.Errorf("a block has the unknown language %q:\n%s", language, text)
		case strings.Contains("\n"+text, "\n$ ") || strings.Contains("\n"+text, "\nclusterctl"):
			t.Errorf("commands in a block of the language %q:\n%s", language, text)
		}
	}
	for words := range unused {
		t.Errorf("the page has no command %q", words)
	}
	return script, steps
}

// newStep returns a command with its continuation lines and its output.
func newStep(text string) step {
	lines := strings.SplitAfter(text, "\n")
	n := 1
	for n < len(lines) && strings.HasSuffix(lines[n-1], "\\\n") {
		n++
	}
	return step{strings.TrimSuffix(strings.Join(lines[:n], ""), "\n"), strings.TrimSpace(strings.Join(lines[n:], ""))}
}

// prefixOf returns the key that is a prefix of a command.
func prefixOf[V any](command string, by map[string]V) (string, bool) {
	for words := range by {
		if strings.HasPrefix(command, words) {
			return words, true
		}
	}
	return "", false
}

// runScript runs a script of steps and compares the output of each.
func runScript(t *testing.T, dir string, environ []string, script string, steps []step, fails map[string][]int) {
	t.Helper()
	if !strings.Contains(script, "\\036") {
		script += "\nprintf '\\n\\036%d\\036\\n' $?\n"
	}
	// The program itself runs instead of a plugin of clusterctl; TestClusterctl tests plugins.
	script = `clusterctl() { if [ "$1" = release ]; then shift; clusterctl-release "$@"; else command clusterctl "$@"; fi; }` + "\n" + script
	command := exec.CommandContext(t.Context(), "bash", "-c", script)
	command.Dir, command.Env = dir, environ
	all, err := command.CombinedOutput()
	text := strings.ReplaceAll(string(all), filepath.Dir(dir), "/home/me")
	seen := map[string]int{}
	for _, s := range steps {
		end := mark.FindStringSubmatchIndex(text)
		if end == nil {
			t.Fatalf("%s: the shell ended: %v: %s", s.command, err, text)
		}
		printed, status := text[:end[0]], text[end[2]:end[3]]
		text = text[end[1]:]
		want := exitFine
		if words, ok := prefixOf(s.command, fails); ok && seen[words] < len(fails[words]) {
			want = fails[words][seen[words]]
			seen[words]++
		}
		if status != strconv.Itoa(want) {
			t.Errorf("%s: status %s, want %d:\n%s", s.command, status, want, printed)
			continue
		}
		pattern := anyText.ReplaceAllString(regexp.QuoteMeta(strings.Join(strings.Fields(s.want), " ")), ".*")
		got := strings.Join(strings.Fields(notes.ReplaceAllString(printed+"\n", "")), " ")
		if s.want != "" && !regexp.MustCompile("^"+pattern+"$").MatchString(got) {
			t.Errorf("%s prints\n%s\nwant, from the page,\n%s", s.command, printed, s.want)
		}
	}
}

// environ returns a reader's environment with the programs, a home folder, and servers with tokens.
func (g guide) environ(t *testing.T, dir string) []string {
	t.Helper()
	prerequisite.Program(t, "bash")
	prerequisite.Program(t, "openssl")
	home := filepath.Dir(dir)
	bin := t.TempDir()
	// TestMain runs this binary as the program.
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"clusterctl": pinned.Tool(t, "clusterctl"), "kubectl": pinned.Tool(t, "kubernetes-v1.36.3/kubectl"), "clusterctl-release": own,
	} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	github, gitlab, gitea := githubserver.New("OWNER", "REPO", time.Now), gitlabserver.New("GROUP/PROJECT"), giteaserver.New("OWNER")
	github.Token, gitlab.JobToken = githubToken, ""
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	hosts := map[string]http.Handler{"registry.example.com": images, "images.example.com": images}
	for _, more := range []map[string]http.Handler{github.Hosts(), gitlab.Hosts(), gitea.Hosts()} {
		maps.Copy(hosts, more)
	}
	environ := slices.Concat(withoutServers(os.Environ()), tlsproxy.Start(t, hosts).Environ(), []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "DOCKER_CONFIG=" + filepath.Join(home, ".docker"),
		"KUBECONFIG=" + filepath.Join(home, "none"), "GOPROXY=off", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		"GITHUB_TOKEN=" + githubToken, "GITLAB_TOKEN=" + gitlab.Token, "GITEA_TOKEN=" + gitea.Token,
	})
	if g.prepare != nil {
		environ = append(environ, g.prepare(t, dir, images)...)
	}
	return environ
}
