// Package version has the version of the provider, which is set at link time:
//
//	-ldflags "-X github.com/clusterctl-release/clusterctl-release/provider/version.gitVersion=v0.1.0 ..."
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

var (
	gitVersion string // for example v0.1.0
	gitCommit  string // the full hash
	buildDate  string // in RFC 3339
)

// String returns the version and the build of the running program on one line.
func String() string {
	return fmt.Sprintf("%s (commit %s, built %s with %s for %s/%s)", cmp.Or(gitVersion, "v0.0.0-dev"),
		cmp.Or(gitCommit, commitOfBuild(), "unknown"), cmp.Or(buildDate, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// commitOfBuild returns the commit that the Go tool records for a build in a checkout.
func commitOfBuild() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return ""
}
