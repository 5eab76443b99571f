package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
)

// programFolder is the folder with the program of buildProgram.
var programFolder string

func TestMain(m *testing.M) {
	logPatience = time.Hour                                // no lines about slow steps on a busy machine
	if filepath.Base(os.Args[0]) == "clusterctl-release" { // a command of a page, see guide.environ
		main()
	}
	var err error
	// The folder is readable for all users, because a test runs the program as another user.
	if programFolder, err = os.MkdirTemp("", "clusterctl-release-test-"); err == nil {
		err = os.Chmod(programFolder, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(programFolder) // a temporary folder
	os.Exit(status)
}

var buildOnce = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "build", "-o", filepath.Join(programFolder, "clusterctl-release"), ".")
	cmd.Dir = startFolder
	return cmd.CombinedOutput()
})

// startFolder is the folder of this package. Tests change the working folder.
var startFolder, _ = os.Getwd()

// buildProgram builds the program once and returns its folder.
func buildProgram(t *testing.T) string {
	t.Helper()
	if out, err := buildOnce(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return programFolder
}

// clusterctl is real clusterctl with a temporary home folder and this program as its plugin.
type clusterctl struct {
	t       *testing.T
	binary  string
	dir     string
	environ []string
}

func newClusterctl(t *testing.T, dir string) *clusterctl {
	t.Helper()
	home := t.TempDir()
	c := &clusterctl{t: t, binary: pinned.Tool(t, "clusterctl"), dir: dir}
	c.environ = append(os.Environ(), "PATH="+buildProgram(t)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+home, "XDG_CONFIG_HOME="+home, "GOPROXY=off", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		// No requests go to a cluster.
		"KUBECONFIG="+filepath.Join(home, "none"))
	return c
}

// run runs clusterctl and returns its standard output. The test fails if clusterctl fails.
func (c *clusterctl) run(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, c.environ
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("clusterctl %v: %v\n%s", args, err, stderr.String())
	}
	return string(out)
}

// TestClusterctl publishes with the program as a plugin of real clusterctl, which then reads the release.
func TestClusterctl(t *testing.T) {
	dir := inDemo(t)
	c := newClusterctl(t, dir)
	if out := c.run("release", "version"); !strings.HasPrefix(out, "clusterctl-release v") || !strings.Contains(out, runtime.Version()) {
		t.Errorf("clusterctl release version prints %q", out)
	}
	if out := c.run("release", "build", "--version", "v0.1.0"); !strings.Contains(out, "built infrastructure-demo v0.1.0") {
		t.Errorf("clusterctl release build prints %q", out)
	}
	c.run("release", "publish", "out/release", "--to", "repository")

	config := filepath.Join(dir, "repository", "clusterctl.yaml")
	components := c.run("generate", "provider", "--infrastructure", "demo:v0.1.0", "--config", config)
	for _, want := range []string{"kind: Deployment", "image: registry.example.com/demo/controller:v0.1.0", "--v=2", "namespace: demo-system", "cluster.x-k8s.io/provider: infrastructure-demo"} {
		if !strings.Contains(components, want) {
			t.Errorf("the components that clusterctl generates do not have %q", want)
		}
	}
	for flavor, want := range map[string][]string{
		"":         {"kind: DemoCluster", "size: small", "name: mine", "version: v1.34.0"},
		"dev":      {"kind: DemoCluster", "size: large", "name: mine", "replicas: 1"},
		"topology": {"kind: ClusterClass", "kind: DemoMachineTemplate", "version: v1.34.0", "name: mine"},
	} {
		t.Run(fmt.Sprintf("flavor %q", flavor), func(t *testing.T) {
			c.t = t
			args := []string{"generate", "cluster", "mine", "--infrastructure", "demo:v0.1.0", "--config", config, "--kubernetes-version", "v1.34.0", "--target-namespace", "ns"}
			if flavor != "" {
				args = append(args, "--flavor", flavor)
			}
			out := c.run(args...)
			for _, text := range append(want, "namespace: ns") {
				if !strings.Contains(out, text) {
					t.Errorf("the cluster does not have %q:\n%s", text, out)
				}
			}
		})
	}
}

// TestClusterctlDigest checks that clusterctl can override the registry of an image with a digest.
func TestClusterctlDigest(t *testing.T) {
	dir := inDemo(t)
	digest := "@sha256:" + strings.Repeat("0a", 32)
	succeed(t, "build", "--version", "v0.1.0", "--image", "controller=registry.example.com/demo/controller:v0.1.0"+digest)
	succeed(t, "publish", "out/release", "--to", "repository")
	config := filepath.Join(dir, "repository", "clusterctl.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "images: {infrastructure-demo: {repository: mirror.example.com/copies}}\n"...)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	components := newClusterctl(t, dir).run("generate", "provider", "--infrastructure", "demo:v0.1.0", "--config", config)
	if want := "image: mirror.example.com/copies/controller:v0.1.0" + digest; !strings.Contains(components, want) {
		t.Errorf("the components that clusterctl generates do not have %q", want)
	}
}

// TestPluginStatus checks that clusterctl returns the exit status of its plugin.
func TestPluginStatus(t *testing.T) {
	dir := inDemo(t)
	program := filepath.Join(buildProgram(t), "clusterctl-release")
	for line, want := range map[string]int{"version": exitFine, "build": exitUsage, "build --version v9.9.9": exitFailed} {
		cmd := exec.CommandContext(t.Context(), program, strings.Fields(line)...)
		cmd.Dir = dir
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: status %v, want %d (%v)", line, cmd.ProcessState, want, err)
		}
	}
}
