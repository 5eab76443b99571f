// Package e2e runs the specs of Cluster API's own end-to-end suite with the provider: Cluster API's managers and the
// provider are installed by clusterctl in a testbed, and the machines are real nodes.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	capie2e "sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/yaml"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
	"github.com/clusterctl-release/clusterctl-release/internal/testbed/sandbox"
	infrav1 "github.com/clusterctl-release/clusterctl-release/provider/api/v1alpha1"
)

var (
	artifacts = flag.String("e2e.artifacts", "", "folder for logs and objects")
	keep      = flag.Bool("e2e.keep", false, "leave the cluster of the spec, and wait until the process is interrupted")
)

// The suite's settings and what it runs in.
var (
	settings   *clusterctl.E2EConfig
	bed        *testbed.Testbed
	management framework.ClusterProxy
	// stopFaults ends the faults, where flags ask for some.
	stopFaults = func() {}
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() && runtime.GOARCH != "amd64" && os.Getenv("CI") == "" {
		fmt.Println("NOT TESTED: a cluster with real nodes needs an amd64 processor")
		os.Exit(0)
	}
	prepare := func() error {
		settings, err := readSettings()
		if err != nil {
			return err
		}
		if err := errors.Join(os.Setenv(outsideVariable, strconv.Itoa(os.Getpid())), testbed.Prepare(), testbed.PrepareBalancer()); err != nil {
			return err
		}
		// The steps that take long come last.
		err = testbed.PrepareNode(settings.Variables[capie2e.KubernetesVersion])
		if err != nil || testing.Short() { // a short run has no upgrade
			return err
		}
		return testbed.PrepareOldNode(settings.Variables[capie2e.KubernetesVersionUpgradeFrom])
	}
	os.Exit(sandbox.Main(prepare, m.Run))
}

// outsideVariable has the process that the sandbox of this one belongs to.
const outsideVariable = "E2E_PROCESS"

func readSettings() (*clusterctl.E2EConfig, error) {
	content, err := os.ReadFile("config.yaml")
	if err != nil {
		return nil, err
	}
	read := &clusterctl.E2EConfig{}
	return read, yaml.UnmarshalStrict(content, read)
}

// TestSpecs runs the specs that Ginkgo's flags choose.
func TestSpecs(t *testing.T) {
	if *artifacts == "" {
		t.Fatal("-e2e.artifacts should name a folder for logs and objects")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Cluster API's specs")
}

var _ = BeforeSuite(func(ctx context.Context) {
	// QuickStartSpec has no interval for machine pools: it waits for them as long as Eventually does, by default a second.
	SetDefaultEventuallyTimeout(30 * time.Minute)
	SetDefaultEventuallyPollingInterval(time.Second)
	var err error
	settings, err = readSettings()
	Expect(err).ToNot(HaveOccurred())
	variables, err := testbed.GuestVariables()
	Expect(err).ToNot(HaveOccurred())
	maps.Copy(variables, settings.Variables)
	// A context of Ginkgo's ends with its node.
	ctx = context.WithoutCancel(ctx)
	bed, err = testbed.Start(ctx, testbed.Options{Scheme: newScheme(), Variables: variables})
	Expect(err).ToNot(HaveOccurred())
	release, err := bed.ReleaseFolder()
	Expect(err).ToNot(HaveOccurred())
	adjustFlavors(release)
	addFlavors(release)
	By("Installing Cluster API and the provider by clusterctl")
	Expect(bed.Init(ctx)).To(Succeed())
	By("Starting a libvirt host")
	hosts, err := bed.StartHosts(ctx, []testbed.HostSpec{{Name: "host-a1", FailureDomain: "a"}})
	Expect(err).ToNot(HaveOccurred())
	Expect(bed.ServeGuest(ctx)).To(Succeed())
	Expect(hosts.Register(ctx)).To(Succeed())
	if *faultSeed != 0 {
		stopFaults = causeFaults(ctx, hosts.All[0], *faultSeed)
	}
	management = framework.NewClusterProxy("management", bed.Kubeconfig, newScheme(), framework.WithMachineLogCollector(consoleLogs{}))
}, NodeTimeout(time.Hour))

var _ = AfterSuite(func() {
	if *keep {
		fmt.Printf("The cluster is left: nsenter --target $(pgrep -P %s) --all sh\nwith KUBECONFIG=%s there. Interrupt process %[1]s when you are done.\n", os.Getenv(outsideVariable), bed.Kubeconfig)
		done := make(chan os.Signal, 1)
		signal.Notify(done, os.Interrupt, syscall.SIGTERM)
		<-done
	}
	stopFaults()
	if management != nil {
		management.Dispose(context.Background())
	}
	if bed != nil {
		Expect(bed.Stop()).To(Succeed())
	}
	fmt.Printf("The logs and objects are in %s\n", *artifacts)
})

func newScheme() *apiruntime.Scheme {
	scheme := apiruntime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	return scheme
}
