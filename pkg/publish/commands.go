package publish

import (
	"slices"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// clusterctlCommands returns the commands that use the releases: for each what clusterctl would
// apply, then one that installs them all, then one for each cluster template. The configuration is
// that of the repository; empty stands for the user's own.
func clusterctlCommands(config string, releases []*release.Release) []string {
	clusterctl := []string{"clusterctl"}
	if config != "" {
		clusterctl = append(clusterctl, "--config", config)
	}
	var commands []string
	add := func(args ...string) {
		commands = append(commands, shellLine(append(clusterctl, args...)))
	}
	install := []string{"init"}
	for _, r := range releases {
		selector := []string{"--" + r.Provider.ClusterctlFlag(), r.Provider.Name + ":" + r.Version}
		add(append([]string{"generate", "provider"}, selector...)...)
		if newest(releases, r) {
			install = append(install, selector...)
		}
	}
	add(install...)
	for _, r := range releases {
		// clusterctl looks for templates in infrastructure providers only.
		if r.Provider.Type != clusterctlv1.InfrastructureProviderType || !newest(releases, r) {
			continue
		}
		for _, f := range r.Files {
			flavor, err := release.Flavor(f.Name)
			if err != nil {
				continue
			}
			args := []string{"generate", "cluster", "my-cluster", "--infrastructure", r.Provider.Name + ":" + r.Version}
			if flavor != "" {
				args = append(args, "--flavor", flavor)
			}
			add(args...)
		}
	}
	return commands
}

// newest says whether clusterctl would take this release, of those of the same provider, when it is
// asked for no version: the highest final one, or the highest pre-release where there are only such.
func newest(releases []*release.Release, r *release.Release) bool {
	return !slices.ContainsFunc(releases, func(other *release.Release) bool {
		return other.Provider == r.Provider && store.Newer(other.Version, r.Version)
	})
}

// shellLine returns a command as a line for a POSIX shell.
func shellLine(args []string) string {
	quoted := make([]string, 0, len(args))
	for _, arg := range args {
		quoted = append(quoted, shellQuote(arg))
	}
	return strings.Join(quoted, " ")
}

// shellQuote quotes a word where a shell would take it for something else.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=+@,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
