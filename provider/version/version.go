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

// Info is the version and the build of the provider.
type Info struct {
	// GitVersion is the semantic version, or v0.0.0-dev for a build without one.
	GitVersion string
	// GitCommit is the commit of the build, or unknown.
	GitCommit string
	// BuildDate is the time of the build in RFC 3339, or unknown.
	BuildDate string
	// GoVersion is the version of the Go compiler.
	GoVersion string
	// Platform is the operating system and the architecture, separated by a slash.
	Platform string
}

// Get returns the version of the running program.
func Get() Info {
	return Info{
		GitVersion: cmp.Or(gitVersion, "v0.0.0-dev"),
		GitCommit:  cmp.Or(gitCommit, commitOfBuild(), "unknown"),
		BuildDate:  cmp.Or(buildDate, "unknown"),
		GoVersion:  runtime.Version(),
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// String returns the version on one line.
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, built %s with %s for %s)", i.GitVersion, i.GitCommit, i.BuildDate, i.GoVersion, i.Platform)
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
