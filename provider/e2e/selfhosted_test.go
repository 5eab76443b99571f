package e2e

import (
	"context"

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
	BeforeEach(func() { Expect(bed.ServeManagers(ctx)).To(Succeed()) })
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
