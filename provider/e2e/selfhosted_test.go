package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed/certificates"
)

const selfHosted = "self-hosted"

var _ = Describe("A cluster manages itself", Label(selfHosted), func() {
	ctx := context.Background()
	BeforeEach(func() {
		Expect(bed.ServeManagers(ctx)).To(Succeed())
		patientWithManagers()
	})
	capie2e.SelfHostedSpec(ctx, func() capie2e.SelfHostedSpecInput {
		// What clusterctl installs in the cluster, in addition to Cluster API's own providers.
		installed := settings.DeepCopy()
		installed.Providers = []clusterctl.ProviderConfig{
			{Name: "libvirt", Type: string(clusterctlv1.InfrastructureProviderType)}, {Name: "in-cluster", Type: string(clusterctlv1.IPAMProviderType)},
		}
		return capie2e.SelfHostedSpecInput{
			E2EConfig: installed, ClusterctlConfigPath: bed.ClusterctlConfig, BootstrapClusterProxy: management,
			ArtifactFolder: folderOf(selfHosted), SkipCleanup: *keep, Flavor: selfHostedFlavor, SkipUpgrade: true,
			PostNamespaceCreated: func(proxy framework.ClusterProxy, namespace string) {
				if proxy == management {
					installNetwork(proxy, namespace)
				} else {
					issueCertificates(ctx, proxy)
				}
			},
		}
	})
})

var (
	leaderElection = regexp.MustCompile(`(?m)^( *- --leader-elect)$`)
	livenessProbe  = regexp.MustCompile(`(?m)^( *)livenessProbe:$`)
)

// patientWithManagers changes the components that clusterctl installs from now on for managers on emulated processors. They
// don't renew a lease in time, which managers that are alone don't need, and answer probes late.
func patientWithManagers() {
	release, err := bed.ReleaseFolder()
	Expect(err).ToNot(HaveOccurred())
	components, err := filepath.Glob(filepath.Join(filepath.Dir(bed.ClusterctlConfig), "*", "*", "*-components.yaml"))
	Expect(err).ToNot(HaveOccurred())
	Expect(components).To(HaveLen(4), "components of Cluster API's providers and of the one for addresses")
	for _, file := range append(components, filepath.Join(release, "infrastructure-components.yaml")) {
		content, err := os.ReadFile(file)
		Expect(err).ToNot(HaveOccurred())
		Expect(content).To(MatchRegexp(leaderElection.String()))
		Expect(content).To(MatchRegexp(livenessProbe.String()))
		content = leaderElection.ReplaceAll(content, []byte("$1=false"))
		content = livenessProbe.ReplaceAll(content, []byte("$0\n$1  timeoutSeconds: 60\n$1  failureThreshold: 30"))
		Expect(os.WriteFile(file, content, 0o644)).To(Succeed())
	}
}

// issueCertificates has this process do in a cluster what cert-manager does, which the testbed does in the management
// cluster, until the spec ends.
func issueCertificates(ctx context.Context, proxy framework.ClusterProxy) {
	scheme := newScheme()
	Expect(admissionv1.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	manager, err := ctrl.NewManager(proxy.GetRESTConfig(), ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // the management cluster's controllers have these names
	})
	Expect(err).ToNot(HaveOccurred())
	Expect(certificates.SetupWithManager(manager)).To(Succeed())
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-ended).To(Succeed())
	})
}
