package metadata

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// contractPattern matches a contract, which has the form of an API version.
var contractPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// pastContracts are former contracts of Cluster API that its code no longer names. They are right for a series that was
// released with them. metadata.yaml exists since v1alpha2.
var pastContracts = []string{"v1alpha2", "v1alpha3", "v1alpha4"}

// newestContract has the name of the API version.
var newestContract = clusterv1.GroupVersion.Version

// supportedContracts are the contracts of providers that clusterctl installs and upgrades: the newest, and the previous
// one as long as it is compatible. clusterctl's own list is not exported; a test compares this list with its client.
//
// Source: clusterctl, internal/contract GetCompatibleVersions.
var supportedContracts = []string{"v1beta1", newestContract}

// KnownContracts returns every contract that Cluster API has or had, oldest first.
func KnownContracts() []string {
	return slices.Concat(pastContracts, supportedContracts)
}

// ContractError means that clusterctl does not support a contract.
type ContractError struct {
	Contract string
}

// Error names the contract and lists the supported ones.
func (e *ContractError) Error() string {
	use := "use one of " + strings.Join(supportedContracts, ", ")
	switch {
	case slices.Contains(pastContracts, e.Contract):
		return fmt.Sprintf("clusterctl refuses providers of contract %q: %s", e.Contract, use)
	case contractPattern.MatchString(e.Contract):
		return fmt.Sprintf("Cluster API has no contract %q: %s", e.Contract, use)
	default:
		return fmt.Sprintf("%q isn't a contract: a contract is the version of a Cluster API API without its group; %s", e.Contract, use)
	}
}

// checkContract returns a *ContractError if clusterctl does not support the contract. A series that is not the newest
// of a file may have a past contract, with which it was released.
func checkContract(contract string, newest bool) error {
	if slices.Contains(supportedContracts, contract) || !newest && slices.Contains(pastContracts, contract) {
		return nil
	}
	return &ContractError{Contract: contract}
}

// ContractChangedError means that the file has a series with another contract than the requested one. The contract of a
// series applies to all of its patch releases, so it never changes.
type ContractChangedError struct {
	Path string
	// Series is the series in the file.
	Series Series
	// Contract is the requested contract.
	Contract string
}

// Error names the place of the series and the alternative.
func (e *ContractChangedError) Error() string {
	return fmt.Sprintf("%s: series %s has contract %s, not %s: the contract of a series applies to all its patch releases and must not change; release the change of contract as a new minor version",
		place(e.Path, e.Series.Line), e.Series, e.Series.Contract, e.Contract)
}

// NoSeriesError means that a metadata.yaml has no release series for a version.
type NoSeriesError struct {
	Path    string
	Version string
	// Listed are the series of the file, in its order.
	Listed []Series
	// Likely is the contract of the previous series: a guess.
	Likely string
	// Command adds the series with the likely contract, unless a caller sets a better one.
	Command string
}

// Error names the missing series, the consequence, and the command that adds it.
func (e *NoSeriesError) Error() string {
	listed := make([]string, 0, len(e.Listed))
	for _, s := range e.Listed {
		listed = append(listed, s.String())
	}
	return fmt.Sprintf("%s has no release series for %s, only for %s: clusterctl refuses to install such a release, and every `clusterctl upgrade plan` that includes it fails: add the series, with the contract in the labels of the release's CRDs: %s",
		e.Path, e.Version, strings.Join(listed, ", "), e.Command)
}

// AddCommand returns the command line that adds the series of a version to a file, or creates the file. Without a
// contract, it has the newest. Several means that the release file names more than one metadata.yaml.
func AddCommand(path, version, contract string, several bool) string {
	command := fmt.Sprintf("clusterctl release metadata add --version %s --contract %s", version, cmp.Or(contract, newestContract))
	if several || filepath.Clean(path) != release.MetadataFile {
		command += " --file " + shellWord(path)
	}
	return command
}

// plainWord matches text that a shell does not interpret.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord returns text as one word of a command line for a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// likelyContract returns the most likely contract of a missing series: that of the next older series, or of the oldest
// without one. Add accepts it.
func (f *File) likelyContract(s Series) string {
	likely := slices.MinFunc(f.series, Series.compare)
	for _, listed := range f.series {
		if listed.compare(s) < 0 && listed.compare(likely) > 0 {
			likely = listed
		}
	}
	if checkContract(likely.Contract, s.compare(f.Newest()) > 0) != nil {
		return newestContract
	}
	return likely.Contract
}
