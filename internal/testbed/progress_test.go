package testbed_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/clusterctl-release/clusterctl-release/internal/testbed"
)

// TestProgress checks that a step and its number are written before it runs.
func TestProgress(t *testing.T) {
	g := NewWithT(t)
	out := &strings.Builder{}
	progress := &testbed.Progress{Out: out, Steps: 2}
	g.Expect(progress.Do("etcd", func() error {
		g.Expect(out.String()).To(Equal("1 of 2: building etcd or reading it from the cache\n"))
		return nil
	})).To(Succeed())
	g.Expect(out.String()).To(HaveSuffix("1 of 2: etcd is ready after 0 s\n"))
	broken := errors.New("broken")
	g.Expect(progress.Do("kubectl", func() error { return broken })).To(MatchError(broken))
	g.Expect(out.String()).To(HaveSuffix("2 of 2: building kubectl or reading it from the cache\n"))
	g.Expect((&testbed.Progress{}).Do("etcd", func() error { return broken })).To(MatchError(broken))
}
