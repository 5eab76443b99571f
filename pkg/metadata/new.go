package metadata

import (
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// New returns a new metadata.yaml with the series of one version. The errors are those of
// release.ParseVersion and *ContractError.
// Source: clusterctl provider contract, "Metadata YAML".
func New(path, version, contract string) (*File, error) {
	v, err := release.ParseVersion(version)
	if err != nil {
		return nil, err
	}
	if err := checkContract(contract, true); err != nil {
		return nil, err
	}
	return Parse(path, fmt.Appendf(nil, `# The release series of the provider, newest first, and the Cluster API contract of each.
# clusterctl refuses a version whose series is missing: add it before the first release of a new
# major or minor version, pre-releases included.
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- major: %d
  minor: %d
  contract: %s
`, v.Major(), v.Minor(), contract))
}
