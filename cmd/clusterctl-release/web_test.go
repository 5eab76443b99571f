package main

import (
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
	"github.com/clusterctl-release/clusterctl-release/internal/treetest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// withoutServers removes the variables with servers and their tokens.
func withoutServers(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "GITHUB_") || strings.HasPrefix(entry, "GITLAB_") || strings.HasPrefix(entry, "CI_")
	})
}

// TestPlainHTTPS checks that a local repository on a web server can be read and verified, and that verify
// reports that real clusterctl refuses its URL.
func TestPlainHTTPS(t *testing.T) {
	const host = "releases.example.com"
	dir := inDemo(t)
	c := newClusterctl(t, dir)
	c.run("release", "build", "--version", "v0.1.0")
	c.run("release", "publish", "out/release", "--to", "repository")
	proxy := tlsproxy.Start(t, map[string]http.Handler{host: http.FileServer(http.Dir(filepath.Join(dir, "repository")))})
	c.environ = append(withoutServers(c.environ), proxy.Environ()...)
	components := "https://" + host + "/infrastructure-demo/v0.1.0/infrastructure-components.yaml"

	treetest.Write(t, dir, map[string]string{"server.yaml": "providers:\n- name: demo\n  type: InfrastructureProvider\n  url: " + components + "\n"})
	_, errs, err := c.tryRun("generate", "provider", "--infrastructure", "demo:v0.1.0", "--config", filepath.Join(dir, "server.yaml"))
	if err == nil || !strings.Contains(errs, "Only GitHub and GitLab are supported") {
		t.Errorf("clusterctl reads from plain https: %v: %s", err, errs)
	}
	verified := c.run("release", "verify", components)
	if !strings.Contains(verified, "note: clusterctl reads nothing from "+host) || !strings.Contains(verified, "verified infrastructure-demo v0.1.0") {
		t.Errorf("verify prints %q", verified)
	}
	c.run("release", "check", components)
	c.run("release", "fetch", components, "--output", "copy")
	want := listing(t, "out/release/infrastructure-demo/v0.1.0")
	got := listing(t, "copy/infrastructure-demo/v0.1.0")
	for _, name := range []string{"infrastructure-components.yaml", "metadata.yaml"} {
		if got[name] == "" || got[name] != want[name] {
			t.Errorf("%s was fetched with other bytes", name)
		}
	}
}

// TestTokenFiles checks that every command that reads takes the token from a file, and that none prints it.
func TestTokenFiles(t *testing.T) {
	const (
		place = "https://gitlab.example.com/api/v4/projects/acme%2Fdemo/packages/generic/demo"
		token = "glpat-TopSecretOfTheTests"
	)
	dir := inDemo(t)
	commit := committed(t, dir)
	c := newClusterctl(t, dir)
	c.run("release", "build", "--version", "v0.1.0")
	github := githubserver.New("acme", "cluster-api-provider-demo", time.Now)
	github.Token, github.Private = githubToken, true
	gitlab := gitlabserver.New("acme/demo")
	gitlab.Token, gitlab.Private = token, true
	hosts := github.Hosts()
	for host, handler := range gitlab.Hosts() {
		hosts[host] = handler
	}
	proxy := tlsproxy.Start(t, hosts)
	c.environ = append(withoutServers(c.environ), proxy.Environ()...)
	treetest.Write(t, dir, map[string]string{"github-token": githubToken + "\n", "gitlab-token": token + "\n"})
	c.run("release", "publish", "out/release", "--to", githubRepository, "--commit", commit, "--token-file", "github-token")
	out := c.run("release", "publish", "out/release", "--to", place, "--commit", commit, "--token-file", "gitlab-token", "--gitlab-release")
	if all := gitlab.Releases(); !strings.Contains(out, "published https://gitlab.example.com/api/v4/projects/acme%2Fdemo/releases/v0.1.0\n") || len(all) != 1 || len(all[0].Links) != 9 {
		t.Errorf("publish prints %q, and the releases are %+v", out, all)
	}
	locations := map[string]string{
		"github-token": githubRepository + "/releases/v0.1.0/infrastructure-components.yaml",
		"gitlab-token": place + "/v0.1.0/infrastructure-components.yaml",
	}
	for file, location := range locations {
		for _, command := range [][]string{
			{"fetch", location, "--output", "copy-" + file},
			{"check", location},
			{"check", "out/release", "--previous", location},
			{"verify", location},
			{"diff", location, "out/release"},
		} {
			full := append(append([]string{"release"}, command...), "--token-file", file)
			stdout, stderr, err := c.tryRun(full...)
			if err != nil || strings.Contains(stdout+stderr, token) || strings.Contains(stdout+stderr, githubToken) {
				t.Errorf("%v: %v\n%s%s", full, err, stdout, stderr)
			}
			if _, _, err := c.tryRun(full[:len(full)-2]...); err == nil {
				t.Errorf("%v reads a private release without a token", command)
			}
		}
		built := listing(t, "out/release/infrastructure-demo/v0.1.0")
		delete(built, release.SourceFile)
		if got := listing(t, "copy-"+file+"/infrastructure-demo/v0.1.0"); !reflect.DeepEqual(got, built) {
			t.Errorf("%s: fetch wrote other bytes: %v", location, got)
		}
	}
	// A deploy token reads a given version, also through clusterctl's client, and publishes nothing.
	gitlab.DeployToken = "gldt-TopSecretOfTheTests"
	treetest.Write(t, dir, map[string]string{"deploy-token": gitlab.DeployToken})
	if verified := c.run("release", "verify", locations["gitlab-token"], "--token-file", "deploy-token"); !strings.Contains(verified, "verified infrastructure-demo v0.1.0: 7 files\n") {
		t.Errorf("verify by a deploy token prints %q", verified)
	}
	if _, errs, err := c.tryRun("release", "publish", "out/release", "--to", place, "--token-file", "deploy-token"); err == nil || !strings.Contains(errs, "publish with an access token") || strings.Contains(errs, gitlab.DeployToken) {
		t.Errorf("publishing by a deploy token: %v: %s", err, errs)
	}
	// A token is valid for one server.
	requestsBefore := len(proxy.Requests())
	_, errs, err := c.tryRun("release", "diff", locations["github-token"], locations["gitlab-token"], "--token-file", "github-token")
	if err == nil || !strings.Contains(errs, "--token-file is for one server") || len(proxy.Requests()) != requestsBefore {
		t.Errorf("two servers with one token: %v: %s", err, errs)
	}
}

// TestNotesByCommand checks that the changes since the previous release are the text of the next one.
func TestNotesByCommand(t *testing.T) {
	dir := inDemo(t)
	c := newClusterctl(t, dir)
	github := githubserver.New("acme", "cluster-api-provider-demo", time.Now)
	github.Token = githubToken
	proxy := tlsproxy.Start(t, github.Hosts())
	c.environ = append(append(withoutServers(c.environ), proxy.Environ()...), "GITHUB_TOKEN="+githubToken)
	c.run("release", "build", "--version", "v0.1.0", "--output", "one")
	c.run("release", "publish", "one", "--to", githubRepository, "--commit", aCommit)
	c.run("release", "build", "--version", "v0.1.1", "--output", "two")
	c.run("release", "publish", "two", "--to", githubRepository, "--commit", aCommit)
	c.run("release", "build", "--version", "v0.1.2", "--output", "three")
	c.run("release", "publish", "three", "--to", githubRepository, "--commit", aCommit, "--notes-from", filepath.Join(dir, "one", "infrastructure-demo", "v0.1.0"))
	for i, before := range []string{"", "v0.1.0", "v0.1.0"} {
		got := github.Releases()[i]
		if want := "## infrastructure-demo: changes from " + before + " to " + got.Tag; before == "" && got.Body != "" || before != "" && !strings.HasPrefix(got.Body, want) {
			t.Errorf("the notes of %s are %q, want %q", got.Tag, got.Body, want)
		}
	}
	if err := os.WriteFile("long.md", []byte(strings.Repeat("x", 130000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, err := c.tryRun("release", "publish", "three", "--to", githubRepository, "--notes", "long.md"); err == nil || !strings.Contains(errs, "the notes have 130000 characters") {
		t.Errorf("notes that are too long: %v: %s", err, errs)
	}
}
