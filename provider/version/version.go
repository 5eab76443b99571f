// Package version says which version of the provider this is. It is stamped at link time:
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

// Info is the version of the provider and what it was built with.
type Info struct {
	// GitVersion is the semantic version, or v0.0.0-dev for a build that isn't stamped.
	GitVersion string
	// GitCommit is the commit that was built, or unknown.
	GitCommit string
	// BuildDate is when it was built, in RFC 3339, or unknown.
	BuildDate string
	// GoVersion is the version of the Go compiler.
	GoVersion string
	// Platform is operating system and architecture, with a slash between them.
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

// commitOfBuild is what the Go tool itself notes for a build inside of a checkout.
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
