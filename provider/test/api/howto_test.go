package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	jsonpatch "github.com/evanphx/json-patch/v5"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/testing/libvirtd"
)

// howTo has the data of testdata/howto.yaml for the pages.
type howTo struct {
	// Bases have the missing fields of objects that a page shows in part, as documents without apiVersion.
	Bases []map[string]any
	Pages map[string]struct {
		// Before are commands that create the prerequisites of a page's commands.
		Before string
		// NotRun has the blocks that aren't run: a text in the block, and the reason.
		NotRun map[string]string
		// Instead has replacements for parts of blocks that don't work here.
		Instead map[string]string
	}
}

func readHowTo(g *WithT) howTo {
	var data howTo
	content, err := os.ReadFile("testdata/howto.yaml")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(yaml.UnmarshalStrict(content, &data)).To(Succeed())
	return data
}

// block is a code block of a page.
type block struct {
	// line is the line of the page at which it begins.
	line           int
	language, text string
}

// readBlocks returns the code blocks of a page.
func readBlocks(page string) []block {
	var blocks []block
	var open *block
	for i, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{line: i + 2, language: fence}
		case isFence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return blocks
}

// howToPages returns the names of the how-to guides about the provider, which docs/README.md lists.
func howToPages(g *WithT) []string {
	index, err := os.ReadFile("../../../docs/README.md")
	g.Expect(err).ToNot(HaveOccurred())
	_, section, _ := strings.Cut(string(index), "### Running clusters on KVM hosts\n")
	section, _, _ = strings.Cut(section, "\n#")
	var names []string
	for _, link := range regexp.MustCompile(`\(how-to/([a-z-]+)\.md\)`).FindAllStringSubmatch(section, -1) {
		names = append(names, link[1])
	}
	g.Expect(len(names)).To(BeNumerically(">=", 9))
	return names
}

// guide is a page with a script of its blocks, which runs in a separate folder.
type guide struct {
	howTo
	name, folder string
	blocks       []block
	script       strings.Builder
	// applied are the files with the page's objects.
	applied []string
}

// write writes a file into the folder.
func (p *guide) write(g *WithT, name, content string) {
	g.Expect(os.WriteFile(filepath.Join(p.folder, name), []byte(content), 0o600)).To(Succeed())
}

// addObjects makes the API server validate the objects of a block. Complete objects are created, unless the block
// begins with a comment with the name of a file: then a command of the page applies that file.
func (p *guide) addObjects(g *WithT, b block, hostURI string) {
	var whole []string
	for i, document := range regexp.MustCompile(`(?m)^---\n`).Split(b.text, -1) {
		var object map[string]any
		g.Expect(yaml.UnmarshalStrict([]byte(document), &object)).To(Succeed(), "%s.md:%d", p.name, b.line)
		if object["apiVersion"] != nil {
			whole = append(whole, document)
			continue
		}
		found := slices.IndexFunc(p.Bases, func(base map[string]any) bool { return base["kind"] == object["kind"] })
		g.Expect(found).To(BeNumerically(">=", 0), "%s.md:%d has a part of an object %v: write the whole object, or add the rest to testdata/howto.yaml", p.name, b.line, object["kind"])
		rest, err := json.Marshal(p.Bases[found])
		g.Expect(err).ToNot(HaveOccurred())
		part, err := yaml.YAMLToJSON([]byte(document))
		g.Expect(err).ToNot(HaveOccurred())
		content, err := jsonpatch.MergePatch(rest, part)
		g.Expect(err).ToNot(HaveOccurred())
		file := fmt.Sprintf("part-%d-%d.yaml", b.line, i)
		p.write(g, file, string(content))
		fmt.Fprintf(&p.script, "kubectl apply --dry-run=server -f %s\n", file)
	}
	if len(whole) == 0 {
		return
	}
	asWritten, file := fmt.Sprintf("page-%d.yaml", b.line), fmt.Sprintf("objects-%d.yaml", b.line)
	named := regexp.MustCompile(`^# ([a-z0-9-]+\.yaml)\n`).FindStringSubmatch(b.text)
	if named != nil {
		file = named[1]
	}
	text := strings.Join(whole, "---\n")
	p.write(g, asWritten, text)
	p.write(g, file, regexp.MustCompile(`uri: \S+`).ReplaceAllLiteralString(text, "uri: "+hostURI))
	p.applied = append(p.applied, file)
	fmt.Fprintf(&p.script, "kubectl apply --dry-run=server -f %s\n", asWritten)
	if named == nil {
		fmt.Fprintf(&p.script, "kubectl apply -f %s\n", file)
	}
}

// readGuide returns the script of a page. It fails for a block that is neither run nor listed.
func readGuide(t *testing.T, g *WithT, data howTo, name, hostURI string) *guide {
	page, err := os.ReadFile(filepath.Join("../../../docs/how-to", name+".md"))
	g.Expect(err).ToNot(HaveOccurred())
	p, about := &guide{howTo: data, name: name, folder: t.TempDir(), blocks: readBlocks(string(page))}, data.Pages[name]
	p.script.WriteString(listClusterScoped + about.Before)
	used := map[string]bool{}
	for _, b := range p.blocks {
		skipped := false
		for _, text := range slices.Sorted(maps.Keys(about.NotRun)) {
			if strings.Contains(b.text, text) {
				skipped, used[text] = true, true
			}
		}
		if skipped {
			continue
		}
		fmt.Fprintf(&p.script, "echo '== %d'\n", b.line)
		switch b.language {
		case "yaml":
			p.addObjects(g, b, hostURI)
		case "sh":
			for text, other := range about.Instead {
				if strings.Contains(b.text, text) {
					b.text, used[text] = strings.ReplaceAll(b.text, text, other), true
				}
			}
			p.script.WriteString(b.text)
		case "text": // the output of the commands before it
		default:
			t.Errorf("%s.md:%d: is %q a command (sh), objects (yaml) or the output of a command (text)?", name, b.line, b.language)
		}
	}
	for _, table := range []map[string]string{about.NotRun, about.Instead} {
		for text := range table {
			g.Expect(used[text]).To(BeTrue(), "%s.md has no block with %q", name, text)
		}
	}
	return p
}

// shims are programs that replace the ones in the commands of pages.
var shims = map[string]string{
	"virsh": "#!/bin/sh\nexec \"$REAL_VIRSH\" -c \"$LIBVIRT\" \"$@\"\n",
	"clusterctl": `#!/bin/bash
usage=$("$REAL_CLUSTERCTL" "$@" --help) || exit
all="$*"
command=$(sed -n 's/^  clusterctl \(.*\) \[flags\]$/\1/p' <<< "$usage" | head -1)
if grep -qF '[command]' <<< "$usage" && [[ ${all#"$command"} == " "[a-z]* ]]; then
  echo "clusterctl doesn't have the command $*" >&2
  exit 1
fi
[ "${!#}" != --help ] || exit 0
case $1 in describe) exec "$REAL_CLUSTERCTL" "$@" ;; esac
`,
}

// TestHowTo runs the how-to guides about the provider. An API server with the manager validates the objects. The real
// kubectl and virsh run the commands, with the API server and with the test driver of a libvirt daemon. clusterctl only
// parses the commands that need pods. testdata/howto.yaml has the blocks that aren't run.
func TestHowTo(t *testing.T) {
	w := theWorld(t)
	libvirtd.Need(t)
	prerequisite.Program(t, "virsh")
	prerequisite.Program(t, "openssl")
	g := NewWithT(t)

	daemon, err := libvirtd.New()
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(daemon.Stop)
	socket := daemon.URI().Socket
	// libvirt's test driver loses its state with the last connection.
	connection := golibvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(socket)))
	g.Expect(connection.ConnectToURI("test:///default")).To(Succeed())
	t.Cleanup(func() { _ = connection.Disconnect() })

	programs := t.TempDir()
	for name, text := range shims {
		g.Expect(os.WriteFile(filepath.Join(programs, name), []byte(text), 0o755)).To(Succeed())
	}
	g.Expect(os.Symlink(pinned.Tool(t, "kubernetes-v1.36.3/kubectl"), filepath.Join(programs, "kubectl"))).To(Succeed())
	virsh, err := exec.LookPath("virsh")
	g.Expect(err).ToNot(HaveOccurred())
	admin, err := w.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	g.Expect(err).ToNot(HaveOccurred())
	kubeconfig, err := admin.KubeConfig()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(programs, "kubeconfig"), kubeconfig, 0o600)).To(Succeed())
	environment := append(os.Environ(), "HOME="+programs, "KUBECONFIG="+filepath.Join(programs, "kubeconfig"),
		"PATH="+programs+":"+os.Getenv("PATH"), "REAL_VIRSH="+virsh, "LIBVIRT=test+unix:///default?socket="+socket,
		"REAL_CLUSTERCTL="+pinned.Tool(t, "clusterctl"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "ROOT="+pinned.Root(t))
	run := func(folder, script string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
		command.Dir, command.Env, command.WaitDelay = folder, environment, time.Second
		var output bytes.Buffer
		command.Stdout, command.Stderr = &output, &output
		err := command.Run()
		return output.String(), err
	}

	pages := howToPages(g)
	data := readHowTo(g)
	for name := range data.Pages {
		g.Expect(pages).To(ContainElement(name))
	}
	output, err := run(programs, "for name in team blue monitoring; do kubectl create namespace $name; done")
	g.Expect(err).ToNot(HaveOccurred(), output)
	for _, name := range pages {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			p := readGuide(t, g, data, name, "test:///default?socket="+socket)
			output, err := run(p.folder, p.script.String())
			t.Logf("%s", output)
			g.Expect(err).ToNot(HaveOccurred(), "%s.md: the failed line is the one after the last == in the log", name)
			p.expectHeaders(g, output)
			expectInline(g, name, func(command string) (string, error) { return run(p.folder, command) })
			output, err = run(p.folder, p.cleanUp())
			g.Expect(err).ToNot(HaveOccurred(), output)
		})
	}
}

// listClusterScoped lists the cluster-scoped objects of other tests.
const listClusterScoped = "list() { kubectl get libvirthosts,libvirtclusteridentities -o name | sort; }\nlist > before\n"

// cleanUp returns a script that deletes the objects that the page and its preparation have created.
func (p *guide) cleanUp() string {
	var script strings.Builder
	for _, file := range slices.Backward(p.applied) {
		fmt.Fprintf(&script, "kubectl delete --ignore-not-found --timeout=1m -f %s\n", file)
	}
	script.WriteString("kubectl delete -n team --all --timeout=1m clusters.cluster.x-k8s.io,libvirtclusters,libvirtmachines\n")
	script.WriteString(strings.TrimSuffix(listClusterScoped, "list > before\n"))
	script.WriteString("list | comm -13 before - | xargs --no-run-if-empty kubectl delete --ignore-not-found --timeout=1m\n")
	return script.String()
}

// inlineCommand matches a command in the text of a page.
var inlineCommand = regexp.MustCompile("`((?:kubectl|clusterctl|virsh) [^`]+)`")

// expectInline makes kubectl, clusterctl and virsh parse the commands in the text of a page.
func expectInline(g *WithT, name string, run func(string) (string, error)) {
	page, err := os.ReadFile(filepath.Join("../../../docs/how-to", name+".md"))
	g.Expect(err).ToNot(HaveOccurred())
	for _, found := range inlineCommand.FindAllStringSubmatch(string(page), -1) {
		words := strings.Fields(strings.ReplaceAll(found[1], `"`, ""))
		switch {
		case words[0] == "virsh":
			usage, err := run("virsh help " + words[1])
			g.Expect(err).ToNot(HaveOccurred(), "%s.md: %s", name, found[1])
			for _, word := range words[2:] {
				if strings.HasPrefix(word, "--") {
					g.Expect(usage).To(ContainSubstring(word), "%s.md: %s", name, found[1])
				}
			}
		case words[0] == "clusterctl" && words[1] == "release": // a plugin, whose commands have other tests
		default:
			usage, err := run(found[1] + " --help")
			g.Expect(err).ToNot(HaveOccurred(), "%s.md: %s: %s", name, found[1], usage)
			if words[0] == "kubectl" {
				g.Expect(usage).To(ContainSubstring("  kubectl "+words[1]+" "), "%s.md: %s", name, found[1])
			}
		}
	}
}

// expectHeaders compares the columns of the tables in a page with the output of the commands.
func (p *guide) expectHeaders(g *WithT, output string) {
	for _, b := range p.blocks {
		if b.language != "text" {
			continue
		}
		header, _, _ := strings.Cut(b.text, "\n")
		before, _, _ := strings.Cut(output, fmt.Sprintf("== %d\n", b.line))
		g.Expect(strings.Join(strings.Fields(before), " ")).To(ContainSubstring(strings.Join(strings.Fields(header), " ")), "%s.md:%d differs from the output", p.name, b.line)
	}
}
