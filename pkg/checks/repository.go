package checks

import (
	"fmt"
	"path"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	sourceNaming     = "clusterctl provider contract, Components YAML, Naming conventions"
	sourceRepository = "clusterctl provider contract, Provider Repositories"
)

var componentsPresent = Check{
	ID: "components-present", Group: Repository, Severity: Error,
	Title:  "The release has its components YAML",
	Source: sourceRepository,
	Run: func(s *Subject, report Report) {
		if _, ok := s.Release.Components(); ok {
			return
		}
		report(Finding{
			Message: fmt.Sprintf("there is no %s: clusterctl can't install the release", s.Release.Provider.ComponentsFile()),
			Fix:     "publish the components YAML under that name",
		})
	},
}

var metadataPresent = Check{
	ID: "metadata-present", Group: Repository, Severity: Error,
	Title:  "The release has its metadata.yaml",
	Source: sourceRepository,
	Run: func(s *Subject, report Report) {
		if _, ok := s.Release.File(release.MetadataFile); ok {
			return
		}
		report(Finding{
			Message: "there is no metadata.yaml: clusterctl installs no version of a provider whose newest release lacks it",
			Fix:     "publish the tree's metadata.yaml with every release; `clusterctl release metadata add` begins one",
		})
	},
}

var defaultTemplate = Check{
	ID: "default-template", Group: Repository, Severity: Note,
	Title:  "An infrastructure provider has a default cluster template",
	Source: "clusterctl provider contract, Workload cluster templates, Naming conventions",
	Run: func(s *Subject, report Report) {
		if s.Release.Provider.Type != clusterctlv1.InfrastructureProviderType {
			return
		}
		if _, ok := s.Release.File(release.ClusterTemplateFile("")); ok {
			return
		}
		report(Finding{
			Message: "there is no cluster-template.yaml: `clusterctl generate cluster` needs a --flavor with this provider",
			Fix:     "publish the template that most users want under that name",
		})
	},
}

var fileNames = Check{
	ID: "file-names", Group: Repository, Severity: Warning,
	Title:  "Files have the names by which clusterctl finds them",
	Source: sourceNaming,
	Run: func(s *Subject, report Report) {
		for _, f := range s.Release.Files {
			if s.Release.Role(f.Name) != release.RoleOther {
				continue
			}
			if message, fix := misnamed(s.Release, f); message != "" {
				report(Finding{Place: s.At(f.Name), Message: message, Fix: fix})
			}
		}
	},
}

// misnamed says what is wrong with the name of a file that clusterctl does not read, where it looks
// like one that clusterctl should.
func misnamed(r *release.Release, f release.File) (message, fix string) {
	stem := strings.TrimSuffix(f.Name, path.Ext(f.Name))
	switch {
	case path.Ext(f.Name) == ".yml":
		if r.Role(stem+".yaml") != release.RoleOther {
			return "clusterctl does not find files that end in .yml", "rename it to " + stem + ".yaml"
		}
	case path.Ext(f.Name) != ".yaml":
		return "", ""
	case strings.HasSuffix(stem, "-components"):
		return fmt.Sprintf("clusterctl reads %s of a provider of this type, and not this file", r.Provider.ComponentsFile()),
			"rename it, or leave it out of the release"
	case strings.HasPrefix(stem, "cluster-template"):
		return "clusterctl finds cluster-template.yaml and cluster-template-FLAVOR.yaml only", "rename it to cluster-template-FLAVOR.yaml"
	case isKind(f.Data, "ClusterClass"):
		return "it has a ClusterClass, and clusterctl finds one in clusterclass-NAME.yaml only", "rename it after the class"
	case isKind(f.Data, "Cluster"):
		return "it has a Cluster, and clusterctl finds cluster templates in cluster-template.yaml and cluster-template-FLAVOR.yaml only",
			"rename it to cluster-template-FLAVOR.yaml"
	}
	return "", ""
}

// isKind says whether a file has an object of Cluster API's of a kind, without reading it whole:
// what is in a file of another role may be anything.
func isKind(data []byte, kind string) bool {
	inCore := false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, " \r\n")
		switch {
		case strings.HasPrefix(line, "---"):
			inCore = false
		case strings.HasPrefix(line, "apiVersion:") && strings.Contains(line, " cluster.x-k8s.io/"):
			inCore = true
		case inCore && strings.HasPrefix(line, "kind:") && strings.TrimSpace(strings.TrimPrefix(line, "kind:")) == kind:
			return true
		}
	}
	return false
}

var version = Check{
	ID: "version", Group: Repository, Severity: Error,
	Title:  "The version is semantic, with a leading v",
	Source: "clusterctl provider contract, Creating a local provider repository",
	Run: func(s *Subject, report Report) {
		if _, err := release.ParseVersion(s.Release.Version); err != nil {
			report(Finding{Message: err.Error(), Fix: "release it under a version such as v0.1.0"})
		}
	},
}

var providerName = Check{
	ID: "provider-name", Group: Repository, Severity: Error,
	Title:  "The provider's name is one that clusterctl takes",
	Source: "clusterctl provider contract, Adding a provider to clusterctl",
	Run: func(s *Subject, report Report) {
		if err := s.Release.Provider.Validate(); err != nil {
			report(Finding{Message: err.Error(), Fix: "rename the provider"})
		}
	},
}
