package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/githubserver"
	"github.com/clusterctl-release/clusterctl-release/internal/gitlabserver"
	"github.com/clusterctl-release/clusterctl-release/internal/pinned"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/tlsproxy"
)

// releaseServer is a place from which clusterctl installs the provider.
type releaseServer struct {
	name string
	// config is clusterctl's configuration file, and environ the variables that clusterctl needs to reach the server.
	config  string
	environ []string
	// requests returns the requests to the server. It is nil for the local repository.
	requests func() []string
}

// releaseServers returns the local repository, and a GitHub and a GitLab of the tests to which the tool has published the
// release of the local repository.
func releaseServers(ctx context.Context) []releaseServer {
	release, err := bed.ReleaseFolder()
	Expect(err).ToNot(HaveOccurred())
	version := filepath.Base(release)
	github := githubserver.New("acme", "cluster-api-provider-libvirt", time.Now)
	gitlab := gitlabserver.New("acme/libvirt")
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	Expect(err).ToNot(HaveOccurred())
	github.Tag(version, strings.TrimSpace(string(commit)))
	servers := []releaseServer{{name: "the local repository", config: bed.ClusterctlConfig}}
	for _, server := range []struct {
		name, place, url, token string
		proxy                   *tlsproxy.Proxy
	}{
		{
			name: "GitHub", place: "https://github.com/acme/cluster-api-provider-libvirt", url: "/releases/" + version,
			token: "GITHUB_TOKEN=" + github.Token, proxy: tlsproxy.Start(GinkgoTB(), github.Hosts()),
		},
		{
			name: "GitLab", place: "https://" + gitlabserver.Host + "/api/v4/projects/acme%2Flibvirt/packages/generic/libvirt", url: "/" + version,
			token: "GITLAB_TOKEN=" + gitlab.Token, proxy: tlsproxy.Start(GinkgoTB(), gitlab.Hosts()),
		},
	} {
		// The management clusters are reached without the proxy.
		environ := append(server.proxy.Environ(), "NO_PROXY=10.0.0.0/8", "no_proxy=10.0.0.0/8", "GOPROXY=off", server.token)
		out, err := tool(ctx, environ, "publish", release, "--to", server.place).CombinedOutput()
		Expect(err).ToNot(HaveOccurred(), string(out))
		servers = append(servers, releaseServer{
			name: server.name, config: configWith(server.name, server.place+server.url+"/infrastructure-components.yaml"), environ: environ,
			requests: server.proxy.Requests,
		})
	}
	return servers
}

// install installs the provider in a management cluster, in the place of the one that it has unless it is new.
func (s releaseServer) install(ctx context.Context, cluster *testbed.Testbed, isNew bool) {
	cluster.ClusterctlConfig = s.config
	if isNew {
		Expect(cluster.Init(ctx, s.environ...)).To(Succeed())
		return
	}
	// clusterctl tests cert-manager in this namespace, and waits without an end where it is still being deleted.
	Eventually(func() error {
		return cluster.Client.Get(ctx, client.ObjectKey{Name: "cert-manager-test"}, &corev1.Namespace{})
	}).WithTimeout(time.Minute).Should(MatchError(apierrors.IsNotFound, "not found"))
	before := len(s.requests())
	_, err := cluster.Clusterctl(ctx, "delete", "--infrastructure=libvirt")
	Expect(err).ToNot(HaveOccurred())
	_, err = cluster.ClusterctlWith(ctx, s.environ, "init", "--infrastructure=libvirt", "--wait-providers")
	Expect(err).ToNot(HaveOccurred())
	Expect(len(s.requests())-before).To(BeNumerically(">=", 2), "clusterctl reads the components and metadata.yaml from %s", s.name)
}

// configWith writes a copy of the testbed's configuration of clusterctl, in which the provider has another URL.
func configWith(name, url string) string {
	content, err := os.ReadFile(bed.ClusterctlConfig)
	Expect(err).ToNot(HaveOccurred())
	var config map[string]any
	Expect(yaml.Unmarshal(content, &config)).To(Succeed())
	changed := 0
	for _, entry := range config["providers"].([]any) {
		if provider := entry.(map[string]any); provider["name"] == "libvirt" {
			provider["url"] = url
			changed++
		}
	}
	Expect(changed).To(Equal(1), string(content))
	content, err = yaml.Marshal(config)
	Expect(err).ToNot(HaveOccurred())
	file := filepath.Join(GinkgoTB().TempDir(), name+".yaml")
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
	return file
}

// tool returns a command of the tool, which `make release` has built. The variables are the only ones of a pipeline.
func tool(ctx context.Context, environ []string, args ...string) *exec.Cmd {
	root, err := pinned.FindRoot()
	Expect(err).ToNot(HaveOccurred())
	command := exec.CommandContext(ctx, filepath.Join(root, "bin", "clusterctl-release"), args...)
	command.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GITHUB_") || strings.HasPrefix(variable, "GITLAB_") || strings.HasPrefix(variable, "CI_")
	}), environ...)
	return command
}
