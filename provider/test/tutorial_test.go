package test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"

	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/prerequisite"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/libvirthost"
)

var tutorial = flag.Bool("tutorial", false, "run the commands of the tutorial about KVM hosts (make tutorial)")

// insteadOf has the blocks of the tutorial that can't run in a testbed, by a text in them, and their replacements.
var insteadOf = map[string]string{
	// For Fedora and RHEL, but the hosts are Debian.
	"dnf install":     ":",
	"virtproxyd.conf": ":",
	// There is no registry. The testbed has created the release and clusterctl's configuration.
	"clusterctl-release push": ":",
	// Both are slow, and image-builder needs a network and KVM. The image of the testbed's guests is used.
	"node-image":                    `IMAGE=$GUEST_IMAGE`,
	"kubernetes-sigs/image-builder": ":",
	// There is no network, and no kubelet to run it.
	"kube-flannel.yml": `printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cni\n  namespace: kube-system\n' > cni.yaml`,
}

// tutorialScript returns the commands of the tutorial, with the addresses of these hosts. It prints the elapsed seconds
// before each section, and waits after the installation until the file "installed" is deleted.
func tutorialScript(g *WithT, hosts []*libvirthost.Host, computer, endpoint string) string {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorials", "kvm-hosts.md"))
	g.Expect(err).ToNot(HaveOccurred())
	var script strings.Builder
	replaced := map[string]bool{}
	for _, part := range regexp.MustCompile("(?ms)^## ([^\n]*)\n|^```sh\n(.*?)^```\n").FindAllStringSubmatch(string(page), -1) {
		heading, block := part[1], part[2]
		if heading != "" {
			fmt.Fprintf(&script, "echo \"== ${SECONDS} s: %s\"\n", heading)
			continue
		}
		for text, instead := range insteadOf {
			if strings.Contains(block, text) {
				block, replaced[text] = instead+"\n", true
			}
		}
		script.WriteString(block)
		if strings.Contains(block, "clusterctl init ") {
			script.WriteString("touch ~/installed; while [ -e ~/installed ]; do sleep 0.1; done\n")
		}
	}
	g.Expect(replaced).To(HaveLen(len(insteadOf)), "the page has each block of insteadOf")
	return strings.NewReplacer("192.0.2.100", endpoint, "192.0.2.10 ", computer+" ", "192.0.2.11", hosts[0].Namespace.Address.String(), "192.0.2.12", hosts[1].Namespace.Address.String(),
		// Guests are in the testbed's own network, and a host has less resources than the provider reserves by default.
		"    bridge: br0\n", "    libvirtNetwork: default\n",
		"\n  failureDomain:", "\n  reserved: {cpus: 0, memory: \"0\", storage: \"0\"}\n  failureDomain:",
	).Replace(script.String()) + "echo \"== ${SECONDS} s: done\"\n"
}

// hostShell replaces ssh on the computer: it runs a command on a host, with the folders of its libvirtd.
const hostShell = `#!/bin/bash
shims=$(dirname "$0")/..
host=$shims/hosts/${1#root@}
shift
exec ip netns exec "$(cat "$host/name")" unshare --mount bash -c '
  for pair in etc:/etc/libvirt lib:/var/lib/libvirt cache:/var/cache/libvirt log:/var/log/libvirt run:/run/libvirt passwd:/etc/passwd group:/etc/group; do
    mount --bind "$1/${pair%%:*}" "${pair#*:}" || exit
  done
  export HOST=$1 HOME=$1/root PATH=$2/host:$PATH
  cd "$HOME" && eval "$3"' - "$(readlink -f "$host")" "$(readlink -f "$shims")" "${*//\/etc\/pki/$(readlink -f "$host")/pki}"
`

// shims are programs that replace the ones that don't work in a testbed, on the computer and on hosts.
var shims = map[string]string{
	"computer/ssh": hostShell,
	"computer/scp": `#!/bin/bash
target=${!#}
target=${target#root@}
cp "${@:1:$#-1}" "$(dirname "$0")/../hosts/${target%:}/root/"
`,
	"host/apt-get":            "#!/bin/sh\necho \"apt-get $*\"\n", // already installed
	"host/virt-host-validate": "#!/bin/sh\necho 'QEMU: Checking for hardware virtualization: not in a testbed'\n",
	// The test starts the daemon again.
	"host/systemctl": "#!/bin/sh\necho \"systemctl $*\"\n[ \"$1\" = stop ] && exit\ntouch \"$HOST/restart\"\nwhile [ -e \"$HOST/restart\" ]; do sleep 0.1; done\n",
	"host/useradd":   "#!/bin/sh\nmkdir -p \"$HOST/home/caplv\"\necho \"caplv:x:990:990::$HOST/home/caplv:/bin/sh\" >> \"$HOST/passwd\"\necho caplv:x:990: >> \"$HOST/group\"\n",
}

// writeComputer creates a folder with the computer's programs and its access to the hosts, and returns it.
func writeComputer(ctx context.Context, t *testing.T, g *WithT, bed *testbed.Testbed, hosts []*libvirthost.Host) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)).To(Succeed())
	}
	for name, text := range shims {
		write(name, text)
	}
	for name, tool := range map[string]string{"kubectl": "kubernetes-v1.36.3/kubectl", "clusterctl": "clusterctl"} {
		path, err := pinned.FindTool(ctx, tool)
		g.Expect(err).ToNot(HaveOccurred())
		g.Expect(os.Symlink(path, filepath.Join(dir, "computer", name))).To(Succeed())
	}
	config, err := os.ReadFile(bed.ClusterctlConfig)
	g.Expect(err).ToNot(HaveOccurred())
	write(".config/cluster-api/clusterctl.yaml", string(config))
	g.Expect(os.Mkdir(filepath.Join(dir, "hosts"), 0o755)).To(Succeed())
	for _, host := range hosts {
		folder := hostFolder(bed, host)
		g.Expect(os.Mkdir(filepath.Join(folder, "root"), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(folder, "name"), []byte(host.Namespace.Name), 0o600)).To(Succeed())
		g.Expect(os.Symlink(folder, filepath.Join(dir, "hosts", host.Namespace.Address.String()))).To(Succeed())
	}
	return dir
}

func hostFolder(bed *testbed.Testbed, host *libvirthost.Host) string {
	return filepath.Join(bed.Dir, "hosts", host.Namespace.Name)
}

// asInstalled makes a testbed's host like a new installation of Debian's libvirt: it removes the pool and the
// certificates. Paths in /etc/pki are in the host's folder.
func asInstalled(g *WithT, folder string, host *libvirthost.Host) {
	client, err := host.Connect()
	g.Expect(err).ToNot(HaveOccurred())
	defer func() { _ = client.Disconnect() }()
	pool, err := client.StoragePoolLookupByName(libvirthost.Pool)
	g.Expect(err).ToNot(HaveOccurred())
	g.Expect(client.StoragePoolDestroy(pool)).To(Succeed())
	g.Expect(client.StoragePoolUndefine(pool)).To(Succeed())
	file := filepath.Join(folder, "etc", "libvirtd.conf")
	config, err := os.ReadFile(file)
	g.Expect(err).ToNot(HaveOccurred())
	pki := filepath.Join(folder, "pki")
	text := strings.NewReplacer("/etc/libvirt/ca.crt", pki+"/CA/cacert.pem", "/etc/libvirt/tls.crt", pki+"/libvirt/servercert.pem", "/etc/libvirt/tls.key", pki+"/libvirt/private/serverkey.pem").Replace(string(config))
	g.Expect(text).ToNot(Equal(string(config)))
	g.Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
}

// serveHost acts as systemd and sshd on a host: it restarts the daemon on request, and authorizes the keys of the user
// caplv.
func serveHost(ctx context.Context, t *testing.T, folder string, host *libvirthost.Host, hasSSH bool) {
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		restart := filepath.Join(folder, "restart")
		if _, err := os.Stat(restart); err == nil {
			host.KillDaemon()
			if err := host.StartDaemon(ctx); err != nil {
				t.Errorf("starting the daemon again: %v", err)
			}
			_ = os.Remove(restart)
		}
		keys, err := os.ReadFile(filepath.Join(folder, "home", "caplv", ".ssh", "authorized_keys"))
		if err != nil || !hasSSH {
			continue
		}
		if key, _, _, _, err := ssh.ParseAuthorizedKey(keys); err == nil {
			host.Authorize(key)
		}
	}
}

// playOnceInstalled simulates workload clusters once the script has installed Cluster API and created a file.
func playOnceInstalled(ctx context.Context, t *testing.T, bed *testbed.Testbed, hosts []*libvirthost.Host, file string) {
	for ctx.Err() == nil {
		if _, err := os.Stat(file); err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if _, err := bed.PlayWorkloads(ctx, hosts); err != nil {
			t.Errorf("simulating workload clusters: %v", err)
		}
		_ = os.Remove(file)
		return
	}
}

// TestTutorial runs the commands of the tutorial about two KVM hosts, which create a cluster on two hosts of a testbed
// and delete it.
func TestTutorial(t *testing.T) {
	if !*tutorial {
		t.Skip("it starts a separate testbed: make tutorial")
	}
	for _, program := range []string{"python3", "openssl", "ssh-keygen", "ssh-keyscan", "virsh"} {
		prerequisite.Program(t, program)
	}
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	variables, err := testbed.GuestVariables()
	g.Expect(err).ToNot(HaveOccurred())
	bed, err := testbed.Start(ctx, testbed.Options{Scheme: newScheme(g), Variables: variables})
	g.Expect(err).ToNot(HaveOccurred())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(bed.Logs())
		}
		g.Expect(bed.Stop()).To(Succeed())
	})
	started, err := bed.StartHosts(ctx, []testbed.HostSpec{{Name: "kvm1"}, {Name: "kvm2", SSH: true}})
	g.Expect(err).ToNot(HaveOccurred())
	hosts := started.All
	computer := writeComputer(ctx, t, g, bed, hosts)
	for i, host := range hosts {
		asInstalled(g, hostFolder(bed, host), host)
		go serveHost(ctx, t, hostFolder(bed, host), host, i == 1)
	}
	go playOnceInstalled(ctx, t, bed, hosts, filepath.Join(computer, "installed"))

	command := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", tutorialScript(g, hosts, bed.Network.Gateway().String(), testbed.EndpointIP(10).String()))
	command.Dir = computer
	command.Env = append(os.Environ(), "HOME="+computer, "XDG_CONFIG_HOME="+filepath.Join(computer, ".config"), "KUBECONFIG="+bed.Kubeconfig,
		"PATH="+filepath.Join(computer, "computer")+":"+os.Getenv("PATH"), "CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GUEST_IMAGE="+testbed.GuestImage())
	out, err := command.CombinedOutput()
	t.Logf("%s", out)
	g.Expect(err).ToNot(HaveOccurred())
	_, after, _ := strings.Cut(string(out), "Install add-ons")
	addons, deleted, _ := strings.Cut(after, "Delete it")
	g.Expect(strings.Count(addons, " running\n")).To(Equal(3), "machines on the hosts")
	g.Expect(regexp.MustCompile(`(?m)^demo-\S+ +Ready `).FindAllString(addons, -1)).To(HaveLen(3), "nodes")
	g.Expect(deleted).ToNot(ContainSubstring(" running\n"))
	for _, host := range hosts {
		g.Expect(host.Domains()).To(BeEmpty())
	}
}
