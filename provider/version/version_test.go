package version

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestString(t *testing.T) {
	g := NewWithT(t)
	g.Expect(String()).To(HavePrefix("v0.0.0-dev (commit "), "a build without a version")

	gitVersion, gitCommit, buildDate = "v0.1.0", "0123abc", "2026-01-02T03:04:05Z"
	t.Cleanup(func() { gitVersion, gitCommit, buildDate = "", "", "" })
	g.Expect(String()).To(HavePrefix("v0.1.0 (commit 0123abc, built 2026-01-02T03:04:05Z with go"))
}
