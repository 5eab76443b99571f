package hypervisortest

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/provider/internal/hypervisor"
)

// freeze freezes the host, and thaws it at the end of the test at the latest.
func (f Fixture) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	thaw, err := f.Freeze()
	if err != nil {
		t.Fatalf("freezing the host: %v", err)
	}
	t.Cleanup(thaw)
	return thaw
}

// lateAnswers checks that calls wait for their answers until their contexts or limits end. A call whose caller has
// given up doesn't close the connection, and is still processed.
func lateAnswers(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	ctx, host := f.connected(t)
	thaw := f.freeze(t)
	defined := make(chan error, 1)
	go func() { defined <- host.DefineDomain(ctx, f.Define(uuid1, "m-1", nil)) }()
	g.Consistently(defined, "200ms").ShouldNot(gomega.Receive())
	impatient, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err := host.DefineDomain(impatient, f.Define(uuid2, "m-2", nil))
	g.Expect(err).To(failsWith(hypervisor.ErrTimeout))
	g.Expect(hypervisor.Uncertain(err)).To(gomega.BeTrue())

	thaw()
	g.Eventually(defined).WithTimeout(callTimeout).Should(gomega.Receive(gomega.Succeed()))
	g.Eventually(func() error { _, err := host.Domain(ctx, uuid2); return err }).WithTimeout(callTimeout).Should(gomega.Succeed())
	for _, uuid := range []string{uuid1, uuid2} {
		g.Expect(host.UndefineDomain(ctx, uuid)).To(gomega.Succeed())
	}
}

// callsPastTheirLimit checks that they close their shared connection, with its watches and all waiting calls. Calls for
// storage have a separate connection, which is opened again.
func callsPastTheirLimit(t *testing.T, f Fixture) {
	g := gomega.NewWithT(t)
	const limit = 5 * time.Second
	ctx, other := f.connected(t)
	host, err := f.ConnectWithLimit(ctx, limit)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	defer func() { _ = host.Close() }()
	watch, err := host.Watch(ctx)
	g.Expect(err).ToNot(gomega.HaveOccurred())
	g.Expect(host.Pool(ctx, f.Pool)).Error().ToNot(gomega.HaveOccurred())

	thaw := f.freeze(t)
	g.Expect(host.Pool(ctx, f.Pool)).Error().To(failsWith(hypervisor.ErrTimeout))
	g.Expect(watch.Changed).ToNot(gomega.BeClosed(), "storage has its own connection")
	thaw()
	g.Expect(host.Pool(ctx, f.Pool)).Error().ToNot(gomega.HaveOccurred())
	g.Expect(host.ListDomains(ctx)).Error().ToNot(gomega.HaveOccurred())

	thaw = f.freeze(t)
	first := make(chan error, 1)
	go func() { _, err := host.ListDomains(ctx); first <- err }()
	g.Consistently(first, limit/2).ShouldNot(gomega.Receive())
	g.Expect(host.Facts(ctx)).Error().To(failsWith(hypervisor.ErrUnreachable), "the later call ends with the connection")
	g.Expect(<-first).To(failsWith(hypervisor.ErrTimeout))
	g.Eventually(watch.Changed).WithTimeout(callTimeout).Should(gomega.BeClosed())
	thaw()
	g.Expect(host.ListDomains(ctx)).Error().To(failsWith(hypervisor.ErrUnreachable), "a lost connection stays lost")
	g.Expect(other.Facts(ctx)).Error().ToNot(gomega.HaveOccurred(), "another connection with a longer limit")
}
