package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
)

// edit replaces a text in a file, relative to the working folder.
func edit(t *testing.T, path, old, with string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), old, with)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// renameRole changes the roleRef of the demo's ClusterRoleBinding, which the API server refuses in an upgrade.
func renameRole(t *testing.T) {
	t.Helper()
	edit(t, "config/rbac/role.yaml", "kind: ClusterRole\nmetadata:\n  name: manager", "kind: ClusterRole\nmetadata:\n  name: controller")
	edit(t, "config/rbac/role_binding.yaml", "kind: ClusterRole\n  name: manager", "kind: ClusterRole\n  name: controller")
}

// TestUpgradeGuardsBuildAndPublish checks that build and publish refuse a release to which users can't
// upgrade, and that the error has the flag that skips the check and its consequences.
func TestUpgradeGuardsBuildAndPublish(t *testing.T) {
	inDemo(t)
	succeed(t, "build", "--version", "v0.1.0")
	succeed(t, "publish", "out/release", "--to", "repository")
	renameRole(t)
	refusal := []string{"role-ref-changed", "nothing was done", "--previous none continues without", "the upgrade from infrastructure-demo v0.1.0", "clusterctl upgrade apply"}
	refused := func(name string, got outcome, folder string) {
		t.Helper()
		for _, want := range refusal {
			if got.status != exitFindings || !strings.Contains(got.stderr, want) {
				t.Errorf("%s: status %d, want %q in the error: %s", name, got.status, want, got.stderr)
			}
		}
		if _, err := os.Stat(filepath.Join(folder, "infrastructure-demo", "v0.1.1")); err == nil {
			t.Errorf("%s refused the release, but wrote it", name)
		}
	}
	refused("build next to the previous release", execute(t, "build", "--version", "v0.1.1"), "out/release")
	refused("build --previous", execute(t, "build", "--version", "v0.1.1", "--output", "fresh", "--previous", "repository"), "fresh")
	requireFailure(t, execute(t, "build", "--version", "v0.1.1", "--previous", "nowhere"), exitFailed, "--previous", "nowhere")

	got := execute(t, "build", "--version", "v0.1.1", "--output", "fresh")
	if got.status != exitFine || strings.Contains(got.stderr, "upgrade") {
		t.Errorf("build into a fresh folder: status %d: %s", got.status, got.stderr)
	}
	refused("publish", execute(t, "publish", "fresh", "--to", "repository"), "repository")
	refused("publish to a new place", execute(t, "publish", "fresh", "--to", "elsewhere", "--previous", "repository/infrastructure-demo/v0.1.0"), "elsewhere")
	refused("publish both", execute(t, "publish", "fresh", "out/release", "--to", "elsewhere"), "elsewhere")
	requireFailure(t, execute(t, "publish", "fresh", "--to", "repository", "--previous", "nowhere"), exitFailed, "--previous", "nowhere")
	if got := execute(t, "publish", "fresh", "--to", "repository", "--plan"); got.status != exitFindings || !strings.Contains(got.stdout, "create     infrastructure-demo v0.1.1") {
		t.Errorf("publish --plan: status %d: %s%s", got.status, got.stdout, got.stderr)
	}
	if out := succeed(t, "publish", "fresh", "--to", "repository", "--previous", "none"); !strings.Contains(out, "published infrastructure-demo v0.1.1") {
		t.Errorf("publish --previous none prints %q", out)
	}
	succeed(t, "build", "--version", "v0.1.1", "--previous", "none")
	if got := execute(t, "build", "--version", "v0.1.2"); got.status != exitFine || !strings.Contains(got.stderr, "note: infrastructure-demo v0.1.2 is checked as an upgrade from v0.1.1") {
		t.Errorf("build of a release to which users can upgrade: status %d: %s", got.status, got.stderr)
	}
}

// TestPublishChecksUpgrade checks that publish takes the previous release from the server, and downloads it
// once for both the checks and the notes.
func TestPublishChecksUpgrade(t *testing.T) {
	dir := inDemo(t)
	c := newClusterctl(t, dir)
	github := githubserver.New("acme", "cluster-api-provider-demo", time.Now)
	github.Token = githubToken
	proxy := tlsproxy.Start(t, github.Hosts())
	c.environ = append(append(withoutServers(c.environ), proxy.Environ()...), "GITHUB_TOKEN="+githubToken)
	publish := []string{"release", "publish", "out/release/infrastructure-demo/v0.1.1", "--to", githubRepository, "--commit", aCommit}
	c.run("release", "build", "--version", "v0.1.0")
	c.run("release", "publish", "out/release", "--to", githubRepository, "--commit", aCommit)

	renameRole(t)
	c.run("release", "build", "--version", "v0.1.1", "--previous", "none")
	_, errs, err := c.tryRun(publish...)
	if err == nil || !strings.Contains(errs, "role-ref-changed") || !strings.Contains(errs, "the upgrade from infrastructure-demo v0.1.0") || len(github.Releases()) != 1 {
		t.Errorf("publish: %v: %s: the releases are %v", err, errs, github.Releases())
	}
	if out := c.run(append(publish, "--previous", "none")...); !strings.Contains(out, "published infrastructure-demo v0.1.1") || len(github.Releases()) != 2 {
		t.Fatalf("publish --previous none prints %q", out)
	}
	c.run("release", "build", "--version", "v0.1.2", "--output", "next")
	requestsBefore := len(proxy.Requests())
	if _, errs, err := c.tryRun("release", "publish", "next", "--to", githubRepository, "--commit", aCommit); err != nil || !strings.Contains(errs, "v0.1.2 is checked as an upgrade from v0.1.1") {
		t.Fatalf("publish: %v: %s", err, errs)
	}
	if got := github.Releases()[2].Body; !strings.Contains(got, "changes from v0.1.1 to v0.1.2") {
		t.Errorf("the notes are %q", got)
	}
	for _, a := range github.Releases()[1].Assets {
		download := fmt.Sprintf("GET %s/%d", githubserver.StorageHost, a.ID)
		times := 0
		for _, r := range proxy.Requests()[requestsBefore:] {
			if r == download {
				times++
			}
		}
		if times != 1 {
			t.Errorf("%s of the previous release was downloaded %d times, want 1", a.Name, times)
		}
	}
}
