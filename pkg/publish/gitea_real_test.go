package publish

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterctl-release/clusterctl-release/internal/giteaserver"
	"github.com/clusterctl-release/clusterctl-release/internal/wire"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/transport"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

var (
	giteaProgram = flag.String("publish.gitea", "", "the program gitea, for the tests with a real one (make gitea)")
	giteaFiles   = flag.String("publish.gitea-files", "", "the folder with the templates and options of that program")
)

// realGitea is a running Gitea with a user who may publish packages.
type realGitea struct {
	host, token string
}

// startGitea starts a Gitea in a new folder.
func startGitea(t *testing.T) realGitea {
	t.Helper()
	host := freeHost(t)
	_, port, _ := net.SplitHostPort(host) // the address of a listener has a port
	dir := t.TempDir()
	config := filepath.Join(dir, "app.ini")
	write(t, config, fmt.Sprintf(`RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = %[1]s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[2]s
ROOT_URL = http://%[3]s/
STATIC_ROOT_PATH = %[4]s
OFFLINE_MODE = true
DISABLE_SSH = true
[database]
DB_TYPE = sqlite3
PATH = %[1]s/gitea.db
[security]
INSTALL_LOCK = true
SECRET_KEY = tests
INTERNAL_TOKEN = tests
[log]
LEVEL = Error
`, dir, port, host, *giteaFiles))
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), *giteaProgram, append(args, "-c", config)...).CombinedOutput()
		if err != nil {
			t.Fatalf("gitea %v: %v: %s", args, err, out)
		}
		lines := strings.Fields(string(out))
		return lines[len(lines)-1]
	}
	run("migrate")
	run("admin", "user", "create", "--username", "acme", "--password", "Secret-of-the-tests-1", "--email", "acme@example.com", "--must-change-password=false")
	token := run("admin", "user", "generate-access-token", "--username", "acme", "--token-name", "tests", "--scopes", "write:package", "--raw")
	cmd := exec.CommandContext(t.Context(), *giteaProgram, "web", "-c", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()
	})
	for range 600 {
		if resp, err := http.Get("http://" + host + "/api/v1/version"); err == nil {
			_ = resp.Body.Close() // nothing is read
			return realGitea{host, token}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("Gitea does not answer: %s", log.String())
	return realGitea{}
}

// realGiteaWorld is a package of a real Gitea behind a proxy of the test.
type realGiteaWorld struct {
	giteaWorld

	t      testing.TB
	server realGitea
	name   string
}

// process implements world.
func (w *realGiteaWorld) process(fault func(int, *http.Request) wire.Fault) (*wire.Network, Options) {
	proxy := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: w.server.host}) },
		ErrorHandler: func(out http.ResponseWriter, _ *http.Request, _ error) { out.WriteHeader(http.StatusBadGateway) }, // the request was cut off
	}
	handler := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(out, r)
		if r.Method == http.MethodPut {
			w.observe()
		}
	})
	n := &wire.Network{
		Hosts: map[string]http.Handler{giteaserver.Host: handler}, Clock: w.clock, Fault: fault,
		Secret: w.server.token, SecretHeader: "Authorization", SecretHosts: []string{giteaserver.Host},
	}
	return n, Options{
		TokenFile: w.token, Progress: w.report, Report: w.report,
		Network: transport.Network{Transport: n, Sleep: w.clock.Sleep, Now: w.clock.Now},
	}
}

// do implements world.
func (w *realGiteaWorld) do(ctx context.Context, n *wire.Network, opts Options, releases ...*release.Release) (*Result, error) {
	return w.publish(ctx, "https://"+giteaserver.Host+"/api/packages/acme/generic/"+w.name, []string{w.server.token}, n, opts, releases...)
}

// public implements world by downloads without a token.
func (w *realGiteaWorld) public(version string) (map[string]string, bool) {
	files := map[string]string{}
	for _, name := range []string{release.MetadataFile, "infrastructure-components.yaml", "cluster-template-prod.yaml", store.ChecksumsFile, store.ProvenanceFile} {
		resp, err := http.Get("http://" + w.server.host + "/api/packages/acme/generic/" + w.name + "/" + version + "/" + name)
		if err != nil {
			w.t.Error(err)
			return nil, false
		}
		var data bytes.Buffer
		_, err = data.ReadFrom(resp.Body)
		_ = resp.Body.Close() // it was read
		if err == nil && resp.StatusCode == http.StatusOK {
			files[name] = release.Digest(data.Bytes())
		}
	}
	_, ok := files[release.MetadataFile]
	return files, ok
}

// observe checks the files that are public now.
func (w *realGiteaWorld) observe() {
	if w.want == nil {
		return
	}
	if files, ok := w.public(w.want.Version); ok && hasAll(w.want, files) {
		w.saw()
	} else if ok {
		w.saw(fmt.Sprintf("%s was public with %v", w.want.Version, files))
	}
}

// complete implements world.
func (w *realGiteaWorld) complete() error {
	w.observe()
	if files, _ := w.public(w.want.Version); len(files) != 5 || w.seen == 0 {
		return fmt.Errorf("the files are %v", files)
	}
	return w.violations()
}

// TestRealGitea runs the tests with faults against generic packages of a real Gitea, and publishes to its
// registry. It needs the flag publish.gitea (make gitea).
func TestRealGitea(t *testing.T) {
	if *giteaProgram == "" {
		t.Skip("this test needs the program gitea, which takes long to build: make gitea")
	}
	server := startGitea(t)
	kinds := []worldKind{{name: "real Gitea", open: func(t testing.TB, _ string, _ uint64) world {
		w := &realGiteaWorld{giteaWorld: giteaWorld{clock: wire.NewClock()}, t: t, server: server}
		w.name = strings.ToLower(strings.NewReplacer("/", "-", " ", "-", ",", "", "#", "-").Replace(t.Name()))
		w.token = filepath.Join(t.TempDir(), "token")
		write(t, w.token, server.token)
		return w
	}}}
	for name, suite := range map[string]func(*testing.T, []worldKind){
		"killed": killedAtEachRequest, "random": randomFaults, "two": twoPublishers, "replace": replaceKilled, "refused": replaceRefused,
	} {
		t.Run(name, func(t *testing.T) { suite(t, kinds) })
	}
	t.Run("registry", func(t *testing.T) {
		t.Setenv("OCI_USERNAME", "acme")
		t.Setenv("OCI_PASSWORD", server.token)
		place := "oci://" + server.host + "/acme/capl"
		quick := Options{Network: transport.Network{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}}
		r := someLabelled("v0.1.0")
		if result := publish(t, place, quick, r); result.Releases[0].Action != store.Create {
			t.Errorf("the result is %s", result)
		}
		if again := publish(t, place, quick, r); again.Releases[0].Action != store.Unchanged {
			t.Errorf("publishing again: %s", again)
		}
		if v, err := Verify(t.Context(), place+":latest", "", quick); err != nil || len(v.Problems) > 0 || len(r.Differences(v.Releases[0])) > 0 {
			t.Errorf("verified %+v, %v", v, err)
		}
	})
}
