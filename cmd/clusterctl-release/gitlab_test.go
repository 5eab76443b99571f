package main

import (
	"errors"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
)

// TestGitLabByClusterctl publishes to a simulated GitLab with the program as clusterctl's plugin, over HTTPS
// through a proxy. Real clusterctl must read the same bytes from there as from a local repository.
func TestGitLabByClusterctl(t *testing.T) {
	const (
		place = "https://gitlab.example.com/api/v4/projects/acme%2Fdemo/packages/generic/demo"
		token = "glpat-TopSecretOfTheTests"
	)
	for _, job := range []bool{false, true} {
		dir := inDemo(t)
		c := newClusterctl(t, dir)
		c.run("release", "build", "--version", "v0.1.0")
		c.run("release", "publish", "out/release", "--to", "repository")
		server := gitlabserver.New("acme/demo")
		server.Token, server.Private, server.Redirect = token, !job, job
		proxy := tlsproxy.Start(t, server.Hosts())
		c.environ = append(slices.DeleteFunc(c.environ, func(entry string) bool {
			return strings.HasPrefix(entry, "GITLAB_") || strings.HasPrefix(entry, "CI_")
		}), proxy.Environ()...)
		without := c.environ
		if job {
			server.JobToken = token
			c.environ = append(c.environ, "CI_JOB_TOKEN="+token, "CI_SERVER_HOST=gitlab.example.com")
		} else {
			c.environ = append(c.environ, "GITLAB_TOKEN="+token)
		}
		out, errs, err := c.tryRun("release", "publish", "out/release", "--to", place)
		if err != nil || !strings.HasPrefix(out, "published infrastructure-demo v0.1.0 in "+place+"/v0.1.0\n") || strings.Contains(out+errs, token) {
			t.Fatalf("publish: %v\n%s%s", err, out, errs)
		}
		if again := c.run("release", "publish", "out/release", "--to", place); !strings.HasPrefix(again, "unchanged infrastructure-demo v0.1.0") {
			t.Errorf("publishing again prints %q", again)
		}
		c.run("release", "fetch", place+"/v0.1.0/infrastructure-components.yaml", "--output", "copy")
		if got := listing(t, "copy/infrastructure-demo/v0.1.0"); !reflect.DeepEqual(got, listing(t, "out/release/infrastructure-demo/v0.1.0")) {
			t.Errorf("fetched other bytes: %v", got)
		}
		if verified := c.run("release", "verify", place+"/v0.1.0/infrastructure-components.yaml"); !strings.Contains(verified, "verified infrastructure-demo v0.1.0: 7 files\n") {
			t.Errorf("verify prints %q", verified)
		}
		server.Put("demo", "v0.1.0", "default", "metadata.yaml", []byte("apiVersion: v1\n")) // a change after the publication
		broken, _, err := c.tryRun("release", "verify", place+"/v0.1.0/infrastructure-components.yaml")
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitFindings || !strings.Contains(broken, "problem: infrastructure-demo v0.1.0: SHA256SUMS names other bytes for metadata.yaml") {
			t.Errorf("verify of a changed release: %v: %s", err, broken)
		}
		server.Put("demo", "v0.1.0", "default", "metadata.yaml", []byte(listing(t, "out/release/infrastructure-demo/v0.1.0")["metadata.yaml"]))
		c.environ = without
		if !job {
			c.environ = append(slices.Clone(without), "GITLAB_ACCESS_TOKEN="+token)
		}
		compareWithLocal(t, c, dir, place+"/v0.1.0/infrastructure-components.yaml")
	}
}
