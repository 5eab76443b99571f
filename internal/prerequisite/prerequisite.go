// Package prerequisite ends tests that can't run on this machine, because a program is missing that "make test"
// installs or builds.
package prerequisite

import (
	"os"
	"os/exec"
	"testing"
)

// Missing ends a test without a requirement; message names it, and how to get it. The test is skipped, and fails if CI
// is in the environment, where skipped tests go unnoticed.
func Missing(tb testing.TB, message string) {
	tb.Helper()
	if os.Getenv("CI") != "" {
		tb.Fatal(message)
	}
	tb.Skip("NOT TESTED: " + message)
}

// Program ends a test if a program isn't in the PATH.
func Program(tb testing.TB, name string) {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(tb, name+" is not in the PATH: install it")
	}
}

// APIServer ends a test without a kube-apiserver for package envtest.
func APIServer(tb testing.TB) {
	tb.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		Missing(tb, `run "make test", or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver`)
	}
}
