package loadbalancer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/provider/internal/loadbalancer"
)

// patience is the timeout of waits. It doesn't check the speed.
const patience = time.Minute

// realHAProxy returns the path of HAProxy. Without it the test is skipped, and fails in CI.
func realHAProxy(t *testing.T) string {
	t.Helper()
	for _, path := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	prerequisite.Missing(t, "no haproxy: hack/tools/libvirt installs it")
	return ""
}

// TestRealHAProxyAcceptsFiles checks that HAProxy accepts every golden file without a warning.
func TestRealHAProxyAcceptsFiles(t *testing.T) {
	program := realHAProxy(t)
	many := loadbalancer.Configuration{Port: 6443}
	for i := range byte(50) {
		many.Servers = append(many.Servers, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i + 1}), 6443))
	}
	all := map[string]loadbalancer.Configuration{"many": many}
	for name, configuration := range configurations {
		all[name] = configuration
	}
	for name, configuration := range all {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			g := NewWithT(t)
			g.Expect(os.WriteFile(file, []byte(configuration.File()), 0o600)).To(Succeed())
			out, err := exec.CommandContext(t.Context(), program, "-c", "-dW", "-f", file).CombinedOutput()
			g.Expect(err).ToNot(HaveOccurred(), "%s", out)
		})
	}
	t.Run("nonsense", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "haproxy.cfg")
		g := NewWithT(t)
		g.Expect(os.WriteFile(file, []byte("no such section\n"), 0o600)).To(Succeed())
		g.Expect(exec.CommandContext(t.Context(), program, "-c", "-f", file).Run()).ToNot(Succeed())
	})
}

// guest is the script of a load balancer's guest with HAProxy. Its disk is a file.
type guest struct {
	*WithT
	disk, target, reloads string
	log                   *syncBuffer
}

type syncBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *syncBuffer) Write(content []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(content)
}

func (b *syncBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// start starts the script with a command that reloads HAProxy. It ends with the test.
func start(t *testing.T, reload string) *guest {
	t.Helper()
	dir := t.TempDir()
	g := &guest{WithT: NewWithT(t), disk: filepath.Join(dir, "disk"), target: filepath.Join(dir, "haproxy.cfg"), reloads: filepath.Join(dir, "reloads"), log: &syncBuffer{}}
	g.write("seed", loadbalancer.Configuration{Port: 6443}.File())
	ctx, cancel := context.WithCancel(context.Background())
	reloader := filepath.Join(dir, "reload")
	g.Expect(os.WriteFile(reloader, []byte("cd "+dir+"\n"+reload+"\n"), 0o600)).To(Succeed())
	script := exec.CommandContext(ctx, "sh", "haproxy-configuration.sh", g.disk, g.target, "sh "+reloader, "", "0.05")
	script.Env = append(os.Environ(), "PATH="+filepath.Dir(realHAProxy(t))+":"+os.Getenv("PATH"))
	script.Stdout, script.Stderr = g.log, g.log
	script.Cancel = func() error { return script.Process.Signal(os.Interrupt) }
	script.WaitDelay = patience
	g.Expect(script.Start()).To(Succeed())
	t.Cleanup(func() {
		cancel()
		_ = script.Wait()
		if t.Failed() {
			t.Log(g.log.String())
		}
	})
	return g
}

func (g *guest) write(seed, file string) {
	disk, err := loadbalancer.Disk([]byte(seed), file)
	g.Expect(err).ToNot(HaveOccurred())
	g.writeArea(disk)
}

// writeArea changes the disk in place, as the host does.
func (g *guest) writeArea(disk []byte) {
	file, err := os.OpenFile(g.disk, os.O_WRONLY|os.O_CREATE, 0o600)
	g.Expect(err).ToNot(HaveOccurred())
	_, err = file.WriteAt(disk, 0)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(file.Close()).To(Succeed())
}

func (g *guest) has(file string) {
	g.Eventually(func() (string, error) {
		content, err := os.ReadFile(g.target)
		return string(content), err
	}).WithTimeout(patience).Should(Equal(file), "%s", g.log)
}

// TestGuestAcceptsConfigurations checks that the script accepts only complete and valid configurations, and reloads
// HAProxy after changes only.
func TestGuestAcceptsConfigurations(t *testing.T) {
	g := start(t, "echo reload >>reloads")
	first, second := loadbalancer.Configuration{Port: 6443}.File(), configurations["three"].File()
	g.has(first)
	says := func(what string) {
		g.Eventually(g.log.String).WithTimeout(patience).Should(ContainSubstring(what))
	}

	// A mix of two writes.
	disk, err := loadbalancer.Disk([]byte("seed"), second)
	g.Expect(err).ToNot(HaveOccurred())
	torn := bytes.Clone(disk)
	copy(torn[loadbalancer.AreaOffset+500:], make([]byte, 300))
	g.writeArea(torn)
	g.Consistently(func() (string, error) {
		content, err := os.ReadFile(g.target)
		return string(content), err
	}, time.Second, 100*time.Millisecond).Should(Equal(first))
	g.writeArea(disk)
	g.has(second)

	g.write("seed", "no such section\n")
	says("the previous configuration stays")
	g.has(second)

	// An area with another mark is ignored.
	other := bytes.Clone(disk)
	copy(other[loadbalancer.AreaOffset:], "another.cfg")
	g.writeArea(other)
	says("There is no configuration of HAProxy on")
	g.has(second)
	g.write("seed", first)
	g.has(first)
	g.Eventually(func() (string, error) {
		content, err := os.ReadFile(g.reloads)
		return string(content), err
	}).WithTimeout(patience).Should(Equal(strings.Repeat("reload\n", 3)), "one for each change")
}

// TestGuestServesThroughHAProxy checks that connections reach only ready API servers of the configuration, also after
// it has changed, without a restart of HAProxy.
func TestGuestServesThroughHAProxy(t *testing.T) {
	program := realHAProxy(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once, so that HAProxy can use the port
	NewWithT(t).Expect(err).ToNot(HaveOccurred())
	port := listener.Addr().(*net.TCPAddr).Port
	NewWithT(t).Expect(listener.Close()).To(Succeed())

	one, two, unready := apiServer(t, "one", http.StatusOK), apiServer(t, "two", http.StatusUnauthorized), apiServer(t, "unready", http.StatusInternalServerError)
	// As with systemd, a signal makes the master reload its configuration.
	g := start(t, "[ ! -e pid ] || kill -USR2 $(cat pid)")
	g.has(loadbalancer.Configuration{Port: 6443}.File())
	configure := func(all ...netip.AddrPort) {
		file := loadbalancer.Configuration{Port: int32(port), Servers: all}.File()
		g.write("seed", file)
		g.has(file)
	}
	configure(one, unready)
	ctx, cancel := context.WithCancel(context.Background())
	master := exec.CommandContext(ctx, program, "-W", "-f", g.target, "-p", filepath.Join(filepath.Dir(g.target), "pid"))
	master.Stdout, master.Stderr = g.log, g.log
	master.Cancel = func() error { return master.Process.Signal(os.Interrupt) }
	master.WaitDelay = patience
	g.Expect(master.Start()).To(Succeed())
	t.Cleanup(func() {
		cancel()
		_ = master.Wait()
	})
	client := httptest.NewTLSServer(nil).Client()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	reaches := func(want ...string) {
		seen := func() map[string]bool {
			names := map[string]bool{}
			for range 8 {
				names[ask(ctx, client, port)] = true
			}
			return names
		}
		wanted := map[string]bool{}
		for _, name := range want {
			wanted[name] = true
		}
		g.Eventually(seen).WithTimeout(patience).WithPolling(100*time.Millisecond).Should(Equal(wanted), "%s", g.log)
	}
	reaches("one")
	configure(one, two, unready)
	reaches("one", "two")
	configure(two)
	reaches("two")
}

// apiServer starts an API server with a status for /readyz, which answers other requests with its name.
func apiServer(t *testing.T, name string, readyz int) netip.AddrPort {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(readyz)
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}

// ask returns the name of the API server that a port leads to, or the error.
func ask(ctx context.Context, client *http.Client, port int) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", port), nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(content)
}
