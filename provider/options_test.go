package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
)

func TestFlagsOfTheDeploymentExist(t *testing.T) {
	g := NewWithT(t)
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	newOptions().addFlags(flags)
	for _, name := range []string{
		"leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period",
		"namespace", "watch-filter", "sync-period", "kube-api-qps", "kube-api-burst",
		"image-transfers", "image-transfers-per-host", "image-min-rate", "image-retention", "image-hosts-allowed", "image-hosts-denied",
		"libvirtcluster-concurrency", "libvirtmachine-concurrency", "libvirtmachinetemplate-concurrency",
		"libvirtmachinepool-concurrency", "libvirthost-concurrency", "libvirtclusteridentity-concurrency",
		"webhook-port", "webhook-cert-dir", "webhook-cert-name", "webhook-key-name",
		"collect-orphans", "orphan-min-age",
		"health-addr", "profiler-address", "contention-profiling",
		"diagnostics-address", "insecure-diagnostics", "tls-min-version", "tls-cipher-suites",
		"feature-gates", "v", "logging-format",
	} {
		g.Expect(flags.Lookup(name)).ToNot(BeNil(), "--%s", name)
	}
}

const notTheOnlyOne = "--collect-orphans: a manager with --namespace or --watch-filter isn't the only one, and must not delete what it doesn't know: leave it out"

func TestFlagsAreValidated(t *testing.T) {
	for message, args := range map[string][]string{
		"": {"--leader-elect", "--namespace=team-a", "--watch-filter=blue"},
		"--orphan-min-age=9m0s: must be at least 10m0s": {"--orphan-min-age=9m"},
		notTheOnlyOne: {"--collect-orphans", "--watch-filter=blue"},
		"--libvirthost-concurrency=0: must be at least 1": {"--libvirthost-concurrency=0"},
		"--image-hosts-allowed and --image-hosts-denied: \"https://example.com\" of the denied sources of images isn't a name, IP address or network": {
			"--image-hosts-allowed=*.example.com,192.0.2.0/24", "--image-hosts-denied=https://example.com"},
		"--image-min-rate=0: must be at least 1":      {"--image-min-rate=0"},
		"--image-retention=-1s: must not be negative": {"--image-retention=-1s"},
		"--leader-elect-lease-duration=5s: must be greater than --leader-elect-renew-deadline, which is 10s": {
			"--leader-elect", "--leader-elect-lease-duration=5s"},
	} {
		t.Run(message, func(t *testing.T) {
			g := NewWithT(t)
			options := newOptions()
			flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			options.addFlags(flags)
			g.Expect(flags.Parse(args)).To(Succeed())
			if message == "" {
				g.Expect(options.validate()).To(Succeed())
			} else {
				g.Expect(options.validate()).To(MatchError(message))
			}
		})
	}
}

func TestTLSFlagsAreValidated(t *testing.T) {
	g := NewWithT(t)
	options := newOptions()
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	options.addFlags(flags)
	g.Expect(flags.Parse([]string{"--tls-min-version=VersionTLS9"})).To(Succeed())
	_, err := options.managerOptions()
	g.Expect(err).To(MatchError(ContainSubstring("reading the TLS and diagnostics flags")))
}
