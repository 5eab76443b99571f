package repository

import (
	"context"
	"fmt"
	"path"
	"strings"

	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	sourceNaming     = "clusterctl provider contract, Components YAML, Naming conventions"
	sourceRepository = "clusterctl provider contract, Provider Repositories"
)

var componentsPresent = checks.Check{
	ID: "components-present", Group: checks.Repository, Severity: checks.Error,
	Title:  "The release has its components YAML",
	Source: sourceRepository,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if _, ok := s.Release.Components(); ok {
			return nil
		}
		report(checks.Finding{
			Message: fmt.Sprintf("%s is missing: clusterctl can't install the release", s.Release.Provider.ComponentsFile()),
			Fix:     "publish the components YAML under that name",
		})
		return nil
	},
}

var metadataPresent = checks.Check{
	ID: "metadata-present", Group: checks.Repository, Severity: checks.Error,
	Title:  "The release has its metadata.yaml",
	Source: sourceRepository,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if _, ok := s.Release.File(release.MetadataFile); ok {
			return nil
		}
		report(checks.Finding{
			Message: "metadata.yaml is missing: clusterctl installs no version of a provider whose newest release lacks it",
			Fix:     "publish the tree's metadata.yaml with every release; `clusterctl release metadata add` creates it",
		})
		return nil
	},
}

var defaultTemplate = checks.Check{
	ID: "default-template", Group: checks.Repository, Severity: checks.Note,
	Title:  "An infrastructure provider has a default cluster template",
	Source: "clusterctl provider contract, Workload cluster templates, Naming conventions",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if s.Release.Provider.Type != clusterctlv1.InfrastructureProviderType {
			return nil
		}
		if _, ok := s.Release.File(release.ClusterTemplateFile("")); ok {
			return nil
		}
		report(checks.Finding{
			Message: "cluster-template.yaml is missing: `clusterctl generate cluster` needs a --flavor with this provider",
			Fix:     "publish the most common template under that name",
		})
		return nil
	},
}

var fileNames = checks.Check{
	ID: "file-names", Group: checks.Repository, Severity: checks.Warning,
	Title:  "Files have the names by which clusterctl finds them",
	Source: sourceNaming,
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		for _, f := range s.Release.Files {
			if s.Release.Role(f.Name) != release.RoleOther {
				continue
			}
			if message, fix := misnamed(s.Release, f); message != "" {
				report(checks.Finding{Place: s.At(f.Name), Message: message, Fix: fix})
			}
		}
		return nil
	},
}

// misnamed returns what is wrong with the name of a file that clusterctl does not read although it looks like one that
// clusterctl should read.
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
		return fmt.Sprintf("for a provider of this type clusterctl reads %s, not this file", r.Provider.ComponentsFile()),
			"rename it, or remove it from the release"
	case strings.HasPrefix(stem, "cluster-template"):
		return "clusterctl finds cluster-template.yaml and cluster-template-FLAVOR.yaml only", "rename it to cluster-template-FLAVOR.yaml"
	case f.HasKind("ClusterClass"):
		return "it has a ClusterClass, and clusterctl finds one in clusterclass-NAME.yaml only", "rename it after the class"
	case f.HasKind("Cluster"):
		return "it has a Cluster, and clusterctl finds cluster templates in cluster-template.yaml and cluster-template-FLAVOR.yaml only",
			"rename it to cluster-template-FLAVOR.yaml"
	}
	return "", ""
}

var version = checks.Check{
	ID: "version", Group: checks.Repository, Severity: checks.Error,
	Title:  "The version is semantic, with a leading v",
	Source: "clusterctl provider contract, Creating a local provider repository",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if _, err := release.ParseVersion(s.Release.Version); err != nil {
			report(checks.Finding{Message: err.Error(), Fix: "release it under a version such as v0.1.0"})
		}
		return nil
	},
}

var providerName = checks.Check{
	ID: "provider-name", Group: checks.Repository, Severity: checks.Error,
	Title:  "clusterctl accepts the provider's name",
	Source: "clusterctl provider contract, Adding a provider to clusterctl",
	Run: func(_ context.Context, s *checks.Subject, report checks.Report) error {
		if err := s.Release.Provider.Validate(); err != nil {
			report(checks.Finding{Message: err.Error(), Fix: "rename the provider"})
		}
		return nil
	},
}
