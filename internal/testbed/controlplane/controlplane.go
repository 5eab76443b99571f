// Package controlplane runs a Kubernetes control plane as processes: etcd, kube-apiserver and optionally
// kube-controller-manager. There are no nodes and no scheduler.
package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/authority"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
)

const startTimeout = 2 * time.Minute

// Options are the options of Start.
type Options struct {
	// Dir is the folder for its files. Start creates it.
	Dir string
	// Etcd, APIServer and ControllerManager are the paths of the programs. Without a ControllerManager there is no
	// garbage collection, and the deletion of namespaces doesn't finish.
	Etcd, APIServer, ControllerManager string
	// Address and Port of the API server.
	Address netip.Addr
	Port    int
	// Names are additional names and addresses of the API server for clients.
	Names []string
	// CA signs the API server's certificate and those of its clients. If it is nil, Start creates one.
	CA *authority.Authority
	// Audited is the user whose requests the API server writes to AuditLog, or empty for none.
	Audited string
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// CA signs the API server's certificate and those of its clients.
	CA *authority.Authority
	// Config is the configuration of clients with all rights.
	Config *rest.Config

	options   Options
	processes []*sandbox.Process
}

// Start starts a control plane and waits until its API server is ready.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	c := &ControlPlane{options: options, CA: options.CA}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.CA == nil {
		if c.CA, err = authority.New("kubernetes"); err != nil {
			return nil, err
		}
	}
	if err := c.writeKeys(); err != nil {
		return nil, err
	}
	etcd, err := c.startEtcd()
	if err != nil {
		return nil, err
	}
	if err := c.startAPIServer(etcd); err != nil {
		return nil, err
	}
	if c.Config, err = c.clientConfig("testbed-admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := c.waitUntilReady(ctx); err != nil {
		return nil, err
	}
	if options.ControllerManager == "" {
		return c, nil
	}
	return c, c.startControllerManager()
}

// Stop ends all processes of the control plane.
func (c *ControlPlane) Stop() {
	for i := len(c.processes) - 1; i >= 0; i-- {
		// The data isn't used again, so a graceful end isn't needed.
		c.processes[i].Kill()
	}
}

// Address returns the address of the API server.
func (c *ControlPlane) Address() netip.Addr {
	return c.options.Address
}

// URL returns the URL of the API server.
func (c *ControlPlane) URL() string {
	return "https://" + net.JoinHostPort(c.options.Address.String(), strconv.Itoa(c.options.Port))
}

// Kubeconfig returns a kubeconfig with all rights. url is the URL of the server for clients that can't use its own.
func (c *ControlPlane) Kubeconfig(url string) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["testbed"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.Config.CertData, ClientKeyData: c.Config.KeyData}
	config.Contexts["testbed"] = &clientcmdapi.Context{Cluster: "testbed", AuthInfo: "admin"}
	config.CurrentContext = "testbed"
	return clientcmd.Write(*config)
}

func (c *ControlPlane) file(name string) string {
	return filepath.Join(c.options.Dir, name)
}

// writeKeys writes the API server's certificate, and the key that signs tokens of service accounts.
func (c *ControlPlane) writeKeys() error {
	names := append([]string{
		c.options.Address.String(), "127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
	}, c.options.Names...)
	serverCert, serverKey, err := c.CA.Issue(authority.Request{CommonName: "kube-apiserver", Names: names})
	if err != nil {
		return err
	}
	// Nodes authenticate the API server by this certificate when it reads logs.
	nodesCert, nodesKey, err := c.CA.Issue(authority.Request{CommonName: "kube-apiserver-kubelet-client"})
	if err != nil {
		return err
	}
	_, accountKey, err := c.CA.Issue(authority.Request{CommonName: "service accounts"})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": c.CA.PEM(), "apiserver.crt": serverCert, "apiserver.key": serverKey, "accounts.key": accountKey,
		"nodes.crt": nodesCert, "nodes.key": nodesKey,
	} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) start(name, program string, args ...string) error {
	process, err := sandbox.Start(name, exec.Command(program, args...), c.file(name+".log"))
	if err != nil {
		return err
	}
	c.processes = append(c.processes, process)
	return nil
}

func (c *ControlPlane) startEtcd() (url string, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	url, peer := "http://127.0.0.1:"+strconv.Itoa(ports[0]), "http://127.0.0.1:"+strconv.Itoa(ports[1])
	return url, c.start("etcd", c.options.Etcd,
		"--data-dir="+c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
}

// AuditLog returns the path of the log with the requests of the audited user.
func (c *ControlPlane) AuditLog() string { return c.file("audit.log") }

// auditArgs returns the arguments for logging the requests of the audited user without their contents.
func (c *ControlPlane) auditArgs() ([]string, error) {
	if c.options.Audited == "" {
		return nil, nil
	}
	policy, err := yaml.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []map[string]any{{"level": "Metadata", "users": []string{c.options.Audited}}, {"level": "None"}},
	})
	if err != nil {
		return nil, err
	}
	args := []string{"--audit-policy-file=" + c.file("audit.yaml"), "--audit-log-path=" + c.AuditLog()}
	return args, os.WriteFile(c.file("audit.yaml"), policy, 0o600)
}

func (c *ControlPlane) startAPIServer(etcd string) error {
	audit, err := c.auditArgs()
	if err != nil {
		return err
	}
	return c.start("kube-apiserver", c.options.APIServer, append(audit,
		"--etcd-servers="+etcd,
		"--bind-address="+c.options.Address.String(), "--advertise-address="+c.options.Address.String(),
		"--secure-port="+strconv.Itoa(c.options.Port), "--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"),
		"--client-ca-file="+c.file("ca.crt"), "--authorization-mode=Node,RBAC",
		"--kubelet-certificate-authority="+c.file("ca.crt"),
		"--kubelet-client-certificate="+c.file("nodes.crt"), "--kubelet-client-key="+c.file("nodes.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.file("accounts.key"), "--service-account-signing-key-file="+c.file("accounts.key"),
		// Webhooks by Service reach the addresses of pods without kube-proxy.
		"--enable-aggregator-routing=true",
		// The Service kubernetes has no reachable address.
		"--endpoint-reconciler-type=none")...)
}

func (c *ControlPlane) startControllerManager() error {
	config, err := c.Kubeconfig(c.URL())
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("admin.conf"), config, 0o600); err != nil {
		return err
	}
	return c.start("kube-controller-manager", c.options.ControllerManager,
		"--kubeconfig="+c.file("admin.conf"), "--leader-elect=false", "--secure-port=0",
		"--use-service-account-credentials=true", "--root-ca-file="+c.file("ca.crt"),
		"--service-account-private-key-file="+c.file("accounts.key"),
		// The nodes of testbeds have no kubelets that renew leases.
		"--controllers=*,-node-lifecycle-controller")
}

func (c *ControlPlane) clientConfig(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.CA.Issue(authority.Request{CommonName: user, Organizations: groups})
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: c.URL(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CA.PEM(), CertData: cert, KeyData: key},
	}, nil
}

// waitUntilReady polls the API server until it is ready or one of the processes has ended.
func (c *ControlPlane) waitUntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/readyz", nil)
		if err != nil {
			return err
		}
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server at %s: %w: %s", c.URL(), ctx.Err(), c.processes[len(c.processes)-1].Tail())
		case <-c.processes[0].Done():
			return c.processes[0].Err()
		case <-c.processes[1].Done():
			return c.processes[1].Err()
		case <-ticker.C:
		}
	}
}

// freePorts returns free ports of the loopback address.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
