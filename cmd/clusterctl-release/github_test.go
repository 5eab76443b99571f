package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
)

const (
	githubRepository = "https://github.com/acme/cluster-api-provider-demo"
	githubToken      = "ghs_TopSecretOfTheTests"
	aCommit          = "0123456789abcdef0123456789abcdef01234567"
)

// tryRun runs clusterctl and returns its output and error.
func (c *clusterctl) tryRun(args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(c.t.Context(), c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, c.environ
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestGitHubByClusterctl publishes to a simulated GitHub with the program as clusterctl's plugin, over HTTPS
// through a proxy. Real clusterctl must read the same bytes from there as from a local repository.
func TestGitHubByClusterctl(t *testing.T) {
	for _, private := range []bool{false, true} {
		name := map[bool]string{false: "public", true: "private"}[private]
		t.Run(name, func(t *testing.T) {
			dir := inDemo(t)
			commit := committed(t, dir)
			c := newClusterctl(t, dir)
			c.run("release", "build", "--version", "v0.1.0")
			c.run("release", "publish", "out/release", "--to", "repository")
			server := githubserver.New("acme", "cluster-api-provider-demo", time.Now)
			server.Token, server.Private = githubToken, private
			proxy := tlsproxy.Start(t, server.Hosts())
			c.environ = append(slices.DeleteFunc(c.environ, func(entry string) bool { return strings.HasPrefix(entry, "GITHUB_") }), proxy.Environ()...)
			without := c.environ
			c.environ = append(c.environ, "GITHUB_TOKEN="+githubToken)

			plan := c.run("release", "publish", "out/release", "--to", githubRepository, "--plan", "--commit", commit)
			if !strings.Contains(plan, "create     infrastructure-demo v0.1.0, 7 files") || len(server.Releases()) > 0 {
				t.Errorf("the plan is %q, and created %v", plan, server.Releases())
			}
			out, errs, err := c.tryRun("release", "publish", "out/release", "--to", githubRepository)
			if server.Commit("v0.1.0") != commit {
				t.Errorf("the tagged commit is %s, want %s", server.Commit("v0.1.0"), commit)
			}
			if err != nil || !strings.HasPrefix(out, "published infrastructure-demo v0.1.0 in "+githubRepository+"/releases/tag/v0.1.0\n") {
				t.Fatalf("publish: %v\n%s%s", err, out, errs)
			}
			if strings.Contains(out+errs, githubToken) {
				t.Error("the output has the token")
			}
			if again := c.run("release", "publish", "out/release", "--to", githubRepository); !strings.HasPrefix(again, "unchanged infrastructure-demo v0.1.0") {
				t.Errorf("publishing again prints %q", again)
			}
			copied := c.run("release", "fetch", githubRepository+"/releases/latest/infrastructure-components.yaml", "--output", "copy")
			if got := listing(t, "copy/infrastructure-demo/v0.1.0"); !reflect.DeepEqual(got, listing(t, "repository/infrastructure-demo/v0.1.0")) {
				t.Errorf("fetched other bytes: %s, %v", copied, got)
			}
			before := len(proxy.Requests())
			c.run("release", "fetch", githubRepository+"/releases/v0.1.0/infrastructure-components.yaml", "--output", "copy")
			once := len(proxy.Requests()) - before
			for _, command := range []string{"graph", "move-plan"} {
				before = len(proxy.Requests())
				_, _, _ = c.tryRun("release", command, githubRepository+"/releases/v0.1.0/infrastructure-components.yaml", "--flavor", "topology")
				if requests := len(proxy.Requests()) - before; requests != once {
					t.Errorf("%s made %d requests, want %d as for one fetch", command, requests, once)
				}
			}
			verified, errs, err := c.tryRun("release", "verify", githubRepository+"/releases/v0.1.0/infrastructure-components.yaml")
			if err != nil || !strings.Contains(verified, "was built from the commit "+commit) || !strings.Contains(verified, "verified infrastructure-demo v0.1.0: 7 files\n") {
				t.Errorf("verify: %v: %s%s", err, verified, errs)
			}
			if private {
				c.environ = append(without, "GITHUB_TOKEN="+githubToken)
			} else {
				c.environ = without
			}
			compareWithLocal(t, c, dir, githubRepository+"/releases/latest/infrastructure-components.yaml")
			compareWithLocal(t, c, dir, githubRepository+"/releases/v0.1.0/infrastructure-components.yaml")
		})
	}
}

// compareWithLocal checks that clusterctl generates the same from a URL as from the local repository.
func compareWithLocal(t *testing.T, c *clusterctl, dir, url string) {
	t.Helper()
	treetest.Write(t, dir, map[string]string{"server.yaml": "providers:\n- name: demo\n  type: InfrastructureProvider\n  url: " + url + "\n"})
	local, server := filepath.Join(dir, "repository", "clusterctl.yaml"), filepath.Join(dir, "server.yaml")
	commands := [][]string{{"generate", "provider", "--infrastructure", "demo:v0.1.0"}}
	for _, flavor := range []string{"", "dev", "topology"} {
		commands = append(commands, []string{"generate", "cluster", "mine", "--infrastructure", "demo:v0.1.0", "--kubernetes-version", "v1.34.0", "--target-namespace", "ns", "--flavor", flavor})
	}
	goproxies := []string{"off", "https://goproxy.example.com"} // through the API, and through links
	if strings.Contains(url, "latest") {
		// clusterctl takes long to give up on a module proxy.
		goproxies, commands = goproxies[:1], commands[:1]
	}
	for _, goproxy := range goproxies {
		environ := c.environ
		c.environ = append(slices.Clone(environ), "GOPROXY="+goproxy)
		for _, command := range commands {
			want := c.run(append(command, "--config", local)...)
			got, errs, err := c.tryRun(append(command, "--config", server)...)
			if err != nil || want != got || len(want) == 0 {
				t.Errorf("%s, GOPROXY=%s: clusterctl %v: %v: %s\n%d bytes, want the %d of the local repository", url, goproxy, command, err, errs, len(got), len(want))
			}
		}
		c.environ = environ
	}
}

// TestPublishFlags checks that wrong flags are errors before any request to a server.
func TestPublishFlags(t *testing.T) {
	inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	if err := os.WriteFile("token", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	requireFailure(t, execute(t, "publish", "out/release", "--to", githubRepository, "--token-file", "token"), exitUsage, "token is empty")
	requireFailure(t, execute(t, "publish", "out/release", "--to", githubRepository, "--token-file", "none"), exitFailed, "none", "no such file")
	requireFailure(t, execute(t, "publish", "out/release", "--to", githubRepository, "--commit", "main"), exitUsage, `"main" isn't a commit`, "git rev-parse HEAD")
	requireFailure(t, execute(t, "publish", "out/release", "--to", githubRepository, "--notes", "none.md"), exitFailed, "--notes", "none.md")
	requireFailure(t, execute(t, "publish", "out/release", "--to", "https://example.com/x"), exitUsage, "isn't a place to publish to", "https://github.com/OWNER/REPO")
}
