package sandbox_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

func TestMain(m *testing.M) {
	os.Exit(sandbox.Main(func() error { return nil }, m.Run))
}

// TestAlone checks that the machine's processes, network and devices aren't visible.
func TestAlone(t *testing.T) {
	g := NewWithT(t)
	g.Expect(os.Getppid()).To(Equal(1))
	interfaces, err := net.Interfaces()
	g.Expect(err).ToNot(HaveOccurred())
	for _, device := range interfaces {
		g.Expect(device.Name).To(Or(Equal("lo"), HavePrefix("net")))
	}
	g.Expect("/dev/kvm").ToNot(BeAnExistingFile())
	g.Expect("/dev/null").To(BeAnExistingFile())
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	g.Expect(err).ToNot(HaveOccurred())
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(fmt.Sprintf("/dev/pts/%d", number)).To(BeAnExistingFile())
	g.Expect(terminal.Close()).To(Succeed())
	g.Expect(t.TempDir()).To(HavePrefix(sandbox.Dir))
}

// TestOrphansAreReaped checks that orphaned processes don't stay as zombies.
func TestOrphansAreReaped(t *testing.T) {
	g := NewWithT(t)
	out, err := exec.Command("sh", "-c", "sleep 0.1 & echo $!").Output()
	g.Expect(err).ToNot(HaveOccurred())
	g.Eventually(filepath.Join("/proc", strings.TrimSpace(string(out)))).WithTimeout(time.Minute).ShouldNot(BeAnExistingFile())
}

// TestLaunch checks that a command has its user, root, mounts and network.
func TestLaunch(t *testing.T) {
	g := NewWithT(t)
	network, err := sandbox.NewNetwork("net0", netip.MustParsePrefix("10.1.0.0/24"))
	g.Expect(err).ToNot(HaveOccurred())
	namespace, err := network.Join("one")
	g.Expect(err).ToNot(HaveOccurred())
	secret := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(secret, "key"), []byte("the key"), 0o600)).To(Succeed())
	g.Expect(os.Chown(filepath.Join(secret, "key"), 65532, 65532)).To(Succeed())

	script := `id -u; id -g; ls /; cat /mounted/key; cat /proc/self/status | grep NoNewPrivs; ls /sys/class/net; touch /mounted/new || touch /new || echo read-only; echo $NAME; uname -n`
	output := func(c sandbox.Command) string {
		command, err := c.Cmd()
		g.Expect(err).ToNot(HaveOccurred())
		out, err := command.CombinedOutput()
		g.Expect(err).ToNot(HaveOccurred(), string(out))
		return string(out)
	}
	g.Expect(os.Chmod(secret, 0o755)).To(Succeed())
	out := output(sandbox.Command{
		Args: []string{"/bin/sh", "-c", script}, Env: []string{"NAME=value", "PATH=/usr/bin:/bin"}, Network: namespace, Hostname: "guest",
		Root: t.TempDir(), ReadOnlyRoot: true, User: 65532, Group: 65533, NoNewPrivileges: true,
		Mounts: []sandbox.Mount{
			{Source: "/bin", Target: "/bin", ReadOnly: true}, {Source: "/lib", Target: "/lib", ReadOnly: true},
			{Source: "/lib64", Target: "/lib64", ReadOnly: true}, {Source: "/usr", Target: "/usr", ReadOnly: true},
			{Source: "/sys", Target: "/sys"}, {Source: secret, Target: "/mounted", ReadOnly: true},
		},
	})
	g.Expect(out).To(HavePrefix("65532\n65533\nbin\ndev\nlib\nlib64\nmounted\nproc\nsys\nusr\nthe keyNoNewPrivs:\t1\neth0\nlo\n"))
	g.Expect(out).To(HaveSuffix("read-only\nvalue\nguest\n"))

	// A missing source is an error, and the command doesn't start.
	command, err := sandbox.Command{Args: []string{"true"}, Mounts: []sandbox.Mount{{Source: "/nowhere", Target: "/mnt"}}}.Cmd()
	g.Expect(err).ToNot(HaveOccurred())
	stderr, err := command.CombinedOutput()
	var exit *exec.ExitError
	g.Expect(errors.As(err, &exit)).To(BeTrue())
	g.Expect(exit.ExitCode()).To(Equal(125))
	g.Expect(string(stderr)).To(ContainSubstring("/nowhere: no such file"))

	// The sandbox and the namespace can connect to each other.
	listener, err := namespace.Listen(t.Context(), ":80")
	g.Expect(err).ToNot(HaveOccurred())
	go func() {
		if accepted, err := listener.Accept(); err == nil {
			_, _ = io.WriteString(accepted, "hello")
			_ = accepted.Close()
		}
	}()
	connection, err := net.Dial("tcp", net.JoinHostPort(namespace.Address.String(), "80"))
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(io.ReadAll(connection)).To(Equal([]byte("hello")))
	g.Expect(listener.Close()).To(Succeed())
	g.Expect(namespace.Remove()).To(Succeed())
}

// TestCut checks that packets from and to a cut namespace are dropped: new connections aren't refused, and an open one
// receives its data after the fix.
func TestCut(t *testing.T) {
	g := NewWithT(t)
	network, err := sandbox.NewNetwork("cut", netip.MustParsePrefix("10.78.0.0/24"))
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { g.Expect(network.Remove()).To(Succeed()) }()
	namespace, err := network.Join("cut-off")
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { g.Expect(namespace.Remove()).To(Succeed()) }()
	listener, err := namespace.Listen(t.Context(), ":80")
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(accepted, accepted) }()
		}
	}()
	address := net.JoinHostPort(namespace.Address.String(), "80")
	open, err := net.Dial("tcp", address)
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = open.Close() }()
	answers := func(limit time.Duration) (string, error) {
		answer := make([]byte, 5)
		g.Expect(open.SetReadDeadline(time.Now().Add(limit))).To(Succeed())
		_, err := io.ReadFull(open, answer)
		return string(answer), err
	}
	_, err = io.WriteString(open, "first")
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(answers(time.Minute)).To(Equal("first"))

	g.Expect(namespace.Cut()).To(Succeed())
	_, err = io.WriteString(open, "later")
	g.Expect(err).ToNot(HaveOccurred())
	_, err = answers(300 * time.Millisecond)
	g.Expect(err).To(MatchError(os.ErrDeadlineExceeded))
	_, err = net.DialTimeout("tcp", address, 300*time.Millisecond)
	g.Expect(err).To(MatchError(ContainSubstring("i/o timeout")))

	g.Expect(namespace.Fix()).To(Succeed())
	g.Expect(answers(time.Minute)).To(Equal("later"))
	again, err := net.DialTimeout("tcp", address, time.Minute)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(again.Close()).To(Succeed())
}

// TestProcess checks that a process that ignores SIGTERM is killed with its whole group.
func TestProcess(t *testing.T) {
	g := NewWithT(t)
	log := filepath.Join(t.TempDir(), "log")
	process, err := sandbox.Start("stubborn", exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait; wait"), log)
	g.Expect(err).ToNot(HaveOccurred())
	g.Eventually(process.Tail).WithTimeout(time.Minute).ShouldNot(BeEmpty())
	child := strings.TrimSpace(process.Tail())
	process.Stop(50 * time.Millisecond)
	g.Eventually(filepath.Join("/proc", child)).WithTimeout(time.Minute).ShouldNot(BeAnExistingFile())
	g.Expect(process.Err()).To(MatchError(ContainSubstring("stubborn: signal: killed")))
}

// TestKillEndsSandbox checks that kill -9 of the program outside ends every process of its sandbox. The program is this
// one, which creates a second sandbox inside.
func TestKillEndsSandbox(t *testing.T) {
	if os.Getenv("TESTBED_TEST_SLEEP") != "" {
		command := exec.Command("sleep", "1000")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready")
		_ = command.Wait()
		return
	}
	g := NewWithT(t)
	inner := exec.Command("/proc/self/exe", "-test.run", "^TestKillEndsSandbox$", "-test.v")
	inner.Env = append(os.Environ(), "TESTBED_STAGE=", "TESTBED_TEST_SLEEP=yes")
	stdout, err := inner.StdoutPipe()
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(inner.Start()).To(Succeed())
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "ready") {
	}
	g.Expect(processes(g, "sleep\x001000")).To(Equal(1))
	g.Expect(inner.Process.Signal(syscall.SIGKILL)).To(Succeed())
	_ = inner.Wait()
	g.Eventually(func() int { return processes(g, "sleep\x001000") }).WithTimeout(time.Minute).Should(BeZero())
}

// processes returns the number of processes with a command line.
func processes(g *WithT, commandLine string) int {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	g.Expect(err).ToNot(HaveOccurred())
	count := 0
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(content), commandLine) {
			count++
		}
	}
	return count
}
