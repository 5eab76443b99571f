package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"
	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"
)

const (
	hostsOfMachines = 20
	// reconcilesAtOnce is the manager's default for LibvirtMachines; the peer works on as many at once.
	reconcilesAtOnce = 50
	infraGroup       = "infrastructure.cluster.x-k8s.io/v1alpha1"
)

// benchMachines times how machines are made: the real manager, on a real kube-apiserver and on twenty
// daemons with libvirt's test driver, finds that many LibvirtMachines when it starts, and has provisioned
// them. The peer is what can't be done without, by a program that keeps nothing and looks nothing up
// twice: the bare calls, of as many machines at once.
func benchMachines(ctx context.Context, work string, sizes []int) error {
	assets, err := output(ctx, "", "hack/tools/envtest")
	if err != nil {
		return err
	}
	module, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	manager := filepath.Join(work, "manager")
	if _, err := output(ctx, "", "go", "build", "-trimpath", "-ldflags=-s -w", "-o", manager, "./provider"); err != nil {
		return err
	}
	log.SetLogger(logr.Discard())
	for _, size := range sizes {
		if err := benchOneSize(ctx, work, assets, module, manager, size); err != nil {
			return fmt.Errorf("%d machines: %w", size, err)
		}
	}
	return nil
}

// plant is an API server and hosts.
type plant struct {
	environment *envtest.Environment
	config      *rest.Config
	client      client.WithWatch
	kubeconfig  string
	hosts       []*libvirtd
	calls       *callCounter
}

func benchOneSize(ctx context.Context, work, assets, module, manager string, size int) (err error) {
	p := &plant{calls: &callCounter{calls: map[uint32]int{}}}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.start(assets, module, work); err != nil {
		return err
	}
	if err := p.fill(ctx, size); err != nil {
		return fmt.Errorf("making objects: %w", err)
	}
	before, err := p.writes(ctx)
	if err != nil {
		return err
	}
	p.calls.take()
	m, err := p.runManager(ctx, manager, filepath.Join(work, "manager.log"), size)
	if err != nil {
		return err
	}
	calls := p.calls.take()
	after, err := p.writes(ctx)
	if err != nil {
		return err
	}
	if err := p.empty(); err != nil {
		return err
	}
	p.calls.take()
	bare, err := p.bareCalls(ctx, size)
	if err != nil {
		return fmt.Errorf("the bare calls: %w", err)
	}
	bareCalls := p.calls.take()
	each := func(n int) float64 { return float64(n) / float64(size) }
	sum := func(of map[uint32]int) (all int) {
		for _, n := range of {
			all += n
		}
		return all
	}
	fmt.Printf("%d LibvirtMachines on %d hosts of libvirt's test driver\n", size, hostsOfMachines)
	fmt.Printf("  all provisioned         %8.1f s after the manager's start, %.1f machines a second\n", m.wall.Seconds(), float64(size)/m.wall.Seconds())
	fmt.Printf("  bare calls to libvirt   %8.1f s, %d at once; ratio %.2f\n", bare.Seconds(), reconcilesAtOnce, m.wall.Seconds()/bare.Seconds())
	fmt.Printf("  peak memory             %8.0f MiB (aim at 1,000: less than 250)\n", m.peak)
	fmt.Printf("  CPU of the manager      %8.1f s\n", m.cpu.Seconds())
	machineWrites := after["libvirtmachines"] - before["libvirtmachines"]
	fmt.Printf("  API writes a machine    %8.2f to LibvirtMachines (aim 6), %.2f events, %.2f to LibvirtHosts\n",
		each(machineWrites), each(after["events"]-before["events"]), each(after["libvirthosts"]-before["libvirthosts"]))
	fmt.Printf("  libvirt calls a machine %8.2f (aim 25), those of the sessions with hosts too; bare %.2f\n", each(sum(calls)), each(sum(bareCalls)))
	fmt.Printf("    by number in remote_protocol.x: %s\n\n", most(calls, size))
	return nil
}

// most writes the calls that were made at least every tenth machine.
func most(calls map[uint32]int, size int) string {
	var parts []string
	for number := range uint32(1000) {
		if calls[number]*10 >= size {
			parts = append(parts, fmt.Sprintf("%d: %.2f", number, float64(calls[number])/float64(size)))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *plant) start(assets, module, work string) (err error) {
	p.environment = &envtest.Environment{BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true, ControlPlaneStopTimeout: time.Minute,
		CRDDirectoryPaths: []string{"provider/config/crd/bases", filepath.Join(module, "core/config/crd/bases")}}
	if p.config, err = p.environment.Start(); err != nil {
		p.environment = nil
		return fmt.Errorf("starting an API server: %w", err)
	}
	p.config.QPS, p.config.Burst = -1, -1
	if p.client, err = client.NewWithWatch(p.config, client.Options{}); err != nil {
		return err
	}
	user, err := p.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return err
	}
	p.kubeconfig = filepath.Join(work, "machines.kubeconfig")
	if err := os.WriteFile(p.kubeconfig, content, 0o600); err != nil {
		return err
	}
	for i := range hostsOfMachines {
		host, err := startLibvirtd(i, p.calls)
		if err != nil {
			return err
		}
		p.hosts = append(p.hosts, host)
		if err := host.prepare(); err != nil {
			return fmt.Errorf("preparing host %d: %w", i, err)
		}
	}
	return nil
}

func (p *plant) stop() error {
	for _, host := range p.hosts {
		host.stop()
	}
	if p.environment == nil {
		return nil
	}
	return p.environment.Stop()
}

func (d *libvirtd) connect() (*libvirt.Libvirt, error) {
	connection := libvirt.NewWithDialer(dialers.NewLocal(dialers.WithSocket(d.socket)))
	return connection, connection.ConnectToURI(libvirt.TestDefault)
}

const poolOfHosts = "default-pool"

// prepare puts the image into the pool, and takes away the domain that the driver comes with. The
// connection is kept: the driver forgets everything with the last one.
func (d *libvirtd) prepare() error {
	connection, err := d.connect()
	if err != nil {
		return err
	}
	d.kept = connection
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	if _, err := connection.StorageVolCreateXML(pool, volumeXML("image.qcow2", false), 0); err != nil {
		return err
	}
	return d.empty()
}

// empty removes all domains, and all volumes but the image.
func (d *libvirtd) empty() error {
	connection := d.kept
	domains, _, err := connection.ConnectListAllDomains(1, 0)
	if err != nil {
		return err
	}
	for _, domain := range domains {
		if err := connection.DomainDestroy(domain); err != nil {
			return err
		}
		if err := connection.DomainUndefine(domain); err != nil {
			return err
		}
	}
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	volumes, _, err := connection.StoragePoolListAllVolumes(pool, 1, 0)
	if err != nil {
		return err
	}
	for _, volume := range volumes {
		if volume.Name != "image.qcow2" {
			if err := connection.StorageVolDelete(volume, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plant) empty() error {
	for _, host := range p.hosts {
		if err := host.empty(); err != nil {
			return err
		}
	}
	return nil
}

func volumeXML(name string, overlay bool) string {
	backing := ""
	if overlay {
		backing = `<backingStore><path>/default-pool/image.qcow2</path><format type="qcow2"/></backingStore>`
	}
	return fmt.Sprintf(`<volume><name>%s</name><capacity unit="bytes">1073741824</capacity><allocation unit="bytes">0</allocation><target><format type="qcow2"/></target>%s</volume>`, name, backing)
}

func object(text string, values ...any) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, yaml.Unmarshal(fmt.Appendf(nil, text, values...), &u.Object)
}

// fill makes hosts, a Cluster, and LibvirtMachines with the Machines that own them.
func (p *plant) fill(ctx context.Context, machines int) error {
	create := func(text string, values ...any) (*unstructured.Unstructured, error) {
		u, err := object(text, values...)
		if err == nil {
			err = p.client.Create(ctx, u)
		}
		return u, err
	}
	for i, host := range p.hosts {
		if _, err := create(`
apiVersion: %s
kind: LibvirtHost
metadata: {name: host-%d}
spec:
  uri: "test:///default?socket=%s"
  failureDomain: rack-%d
  storagePools: {images: %[5]s, disks: [%[5]s]}
  overcommit: {cpuPercent: 1600}
  reserved: {cpus: 0}
`, infraGroup, i, host.socket, i%4, poolOfHosts); err != nil {
			return err
		}
	}
	if err := p.client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bootstrap"},
		Data: map[string][]byte{"value": bytes.Repeat([]byte("#cloud-config\n"), 500), "format": []byte("cloud-config")}}); err != nil {
		return err
	}
	if _, err := create("apiVersion: %s\nkind: LibvirtCluster\nmetadata: {namespace: default, name: bench}\nspec: {controlPlaneEndpoint: {host: 192.0.2.10, port: 6443}}\n", infraGroup); err != nil {
		return err
	}
	cluster, err := create(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: default, name: bench}
spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtCluster, name: bench}}
`)
	if err != nil {
		return err
	}
	if err := p.client.Status().Patch(ctx, cluster, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"initialization":{"infrastructureProvisioned":true}}}`))); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range machines {
		group.Go(func() error { return p.createMachine(ctx, i) })
	}
	return group.Wait()
}

func (p *plant) createMachine(ctx context.Context, number int) error {
	name := fmt.Sprintf("machine-%d", number)
	machine, err := object(`
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {namespace: default, name: %[1]s, labels: {cluster.x-k8s.io/cluster-name: bench}}
spec:
  clusterName: bench
  bootstrap: {dataSecretName: bootstrap}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachine, name: %[1]s}
`, name)
	if err != nil {
		return err
	}
	if err := p.client.Create(ctx, machine); err != nil {
		return err
	}
	infra, err := object(`
apiVersion: %s
kind: LibvirtMachine
metadata:
  namespace: default
  name: %[2]s
  labels: {cluster.x-k8s.io/cluster-name: bench}
  ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, name: %[2]s, uid: %[3]s, controller: true}]
spec:
  cpus: 1
  memory: 512Mi
  firmware: {type: BIOS}
  image: {volume: image.qcow2}
  rootDisk: {size: 1Gi}
`, infraGroup, name, machine.GetUID())
	if err != nil {
		return err
	}
	return p.client.Create(ctx, infra)
}

// ran is what a run of the manager took.
type ran struct {
	wall, cpu time.Duration
	// peak memory in MiB.
	peak float64
}

// runManager starts the manager, waits until as many machines are provisioned, and ends it.
func (p *plant) runManager(ctx context.Context, manager, logFile string, machines int) (m ran, err error) {
	webhooks := envtest.WebhookInstallOptions{}
	if err := webhooks.PrepWithoutInstalling(); err != nil {
		return m, fmt.Errorf("making certificates: %w", err)
	}
	defer func() { err = errors.Join(err, webhooks.Cleanup()) }()
	out, err := os.Create(logFile)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	cmd := exec.CommandContext(ctx, manager, "--kubeconfig="+p.kubeconfig, "--webhook-cert-dir="+webhooks.LocalServingCertDir,
		fmt.Sprintf("--webhook-port=%d", webhooks.LocalServingPort), "--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics",
		"--kube-api-qps=2000", "--kube-api-burst=4000", "--profiler-address="+os.Getenv("BENCH_PROFILER"))
	cmd.Stdout, cmd.Stderr = out, out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return m, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		ranErr := <-exited
		cancel(fmt.Errorf("the manager ended: %w", errors.Join(ranErr, errors.New(tail(logFile)))))
		close(ended)
	}()
	waitErr := p.awaitProvisioned(waiting, machines)
	m.wall = time.Since(start)
	if waitErr == nil {
		m.peak, err = peakOf(cmd.Process.Pid)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-ended
	if cmd.ProcessState != nil {
		m.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return m, errors.Join(waitErr, err)
}

func tail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-4000):])
}

// peakOf returns the peak memory of a process, in MiB.
func peakOf(pid int) (float64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(content), "\n") {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			return float64(kib) / 1024, err
		}
	}
	return 0, errors.New("/proc doesn't say the peak memory")
}

// awaitProvisioned watches until as many machines are provisioned.
func (p *plant) awaitProvisioned(ctx context.Context, machines int) error {
	provisioned := map[string]bool{}
	for len(provisioned) < machines {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(infraGroup)
		list.SetKind("LibvirtMachineList")
		if err := p.client.List(ctx, list); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		note := func(u *unstructured.Unstructured) {
			if is, _, _ := unstructured.NestedBool(u.Object, "status", "initialization", "provisioned"); is {
				provisioned[u.GetName()] = true
			}
		}
		for i := range list.Items {
			note(&list.Items[i])
		}
		watch, err := p.client.Watch(ctx, list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		for event := range watch.ResultChan() {
			if u, is := event.Object.(*unstructured.Unstructured); is {
				note(u)
			}
			if len(provisioned) >= machines {
				break
			}
		}
		watch.Stop()
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writes returns how many requests that write the API server has answered, by resource. Creation of
// LibvirtMachines, which are the benchmark's own, is left out.
func (p *plant) writes(ctx context.Context) (map[string]int, error) {
	clients, err := kubernetes.NewForConfig(p.config)
	if err != nil {
		return nil, err
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	writes := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") {
			continue
		}
		labels, value, _ := strings.Cut(line, "} ")
		for _, resource := range []string{"libvirtmachines", "libvirthosts", "events"} {
			isWrite := strings.Contains(labels, `verb="PATCH"`) || strings.Contains(labels, `verb="PUT"`) ||
				resource == "events" && strings.Contains(labels, `verb="POST"`)
			if !isWrite || !strings.Contains(labels, `resource="`+resource+`"`) {
				continue
			}
			count, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("reading %q: %w", line, err)
			}
			writes[resource] += int(count)
		}
	}
	return writes, lines.Err()
}

// bareCalls makes as many machines by nothing but the calls that make them.
func (p *plant) bareCalls(ctx context.Context, machines int) (time.Duration, error) {
	start := time.Now()
	connections := make([]*libvirt.Libvirt, len(p.hosts))
	for i, host := range p.hosts {
		connection, err := host.connect()
		if err != nil {
			return 0, err
		}
		defer func() { _ = connection.Disconnect() }()
		connections[i] = connection
	}
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(reconcilesAtOnce)
	for i := range machines {
		group.Go(func() error {
			host := i % len(p.hosts)
			return bareMachine(connections[host], p.hosts[host], i)
		})
	}
	err := group.Wait()
	return time.Since(start), err
}

func bareMachine(connection *libvirt.Libvirt, host *libvirtd, number int) error {
	pool, err := connection.StoragePoolLookupByName(poolOfHosts)
	if err != nil {
		return err
	}
	if _, err := connection.StorageVolLookupByName(pool, "image.qcow2"); err != nil {
		return err
	}
	if _, err := connection.StorageVolCreateXML(pool, volumeXML(fmt.Sprintf("%d-root", number), true), 0); err != nil {
		return err
	}
	seed, err := connection.StorageVolCreateXML(pool, volumeXML(fmt.Sprintf("%d-seed", number), false), 0)
	if err != nil {
		return err
	}
	// An upload needs a connection of its own: one that fails can block all of it.
	own, err := host.connect()
	if err != nil {
		return err
	}
	content := bytes.Repeat([]byte{1}, 400<<10)
	if err := errors.Join(own.StorageVolUpload(seed, bytes.NewReader(content), 0, uint64(len(content)), 0), own.Disconnect()); err != nil {
		return err
	}
	domain, err := connection.DomainDefineXMLFlags(fmt.Sprintf(`<domain type="test"><name>m-%d</name><memory unit="MiB">512</memory><vcpu>1</vcpu>
<os><type arch="x86_64">hvm</type></os><devices>
<disk type="volume" device="disk"><source pool="default-pool" volume="%[1]d-root"/><target dev="vda" bus="virtio"/></disk>
<disk type="volume" device="disk"><source pool="default-pool" volume="%[1]d-seed"/><target dev="vdb" bus="virtio"/></disk>
<interface type="network"><source network="default"/></interface></devices></domain>`, number), libvirt.DomainDefineValidate)
	if err != nil {
		return err
	}
	if err := connection.DomainSetAutostart(domain, 1); err != nil {
		return err
	}
	if err := connection.DomainCreate(domain); err != nil {
		return err
	}
	_, err = connection.DomainInterfaceAddresses(domain, uint32(libvirt.DomainInterfaceAddressesSrcLease), 0)
	return err
}
