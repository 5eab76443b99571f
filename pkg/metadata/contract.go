package metadata

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// contractPattern is how a contract is written: as the version of an API.
var contractPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// pastContracts are those that Cluster API had and that its code no longer names. They are right
// for a series that was released under them. There was no metadata.yaml before v1alpha2.
var pastContracts = []string{"v1alpha2", "v1alpha3", "v1alpha4"}

// newestContract is the one that is called like the API version.
var newestContract = clusterv1.GroupVersion.Version

// supportedContracts are those of providers that clusterctl installs and upgrades: the newest, and
// the one before for as long as it is compatible. Clusterctl's own list is not exported; a test asks its client.
// Source: clusterctl, internal/contract GetCompatibleVersions.
var supportedContracts = []string{"v1beta1", newestContract}

// KnownContracts returns every contract that Cluster API has or had, oldest first.
func KnownContracts() []string {
	return slices.Concat(pastContracts, supportedContracts)
}

// ContractError says that clusterctl takes no provider of a contract.
type ContractError struct {
	Contract string
}

// Error names the contract and lists those that clusterctl takes.
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

// checkContract returns a *ContractError where clusterctl takes no provider of the contract. A series
// that is not a file's newest may have a past contract: it was released under it.
func checkContract(contract string, newest bool) error {
	if slices.Contains(supportedContracts, contract) || !newest && slices.Contains(pastContracts, contract) {
		return nil
	}
	return &ContractError{Contract: contract}
}

// ContractChangedError says that a series is in the file with another contract than the one asked
// for. The contract of a series holds for all of its patch releases, so it is never changed.
type ContractChangedError struct {
	Path string
	// Series is the series as the file has it.
	Series Series
	// Contract is what was asked for.
	Contract string
}

// Error says where the series is and what can be done instead.
func (e *ContractChangedError) Error() string {
	return fmt.Sprintf("%s: series %s has contract %s, not %s: the contract of a series is that of all its patch releases and stays as it is; release the change of contract as a new minor version",
		place(e.Path, e.Series.Line), e.Series, e.Series.Contract, e.Contract)
}

// NoSeriesError says that a metadata.yaml has no release series for a version.
type NoSeriesError struct {
	Path    string
	Version string
	// Listed are the series that the file has, in its order.
	Listed []Series
	// Likely is the contract of the series before: a guess.
	Likely string
	// Command adds the series, with the likely contract unless a caller knows better.
	Command string
}

// Error says what is missing, what it causes, and the command that fixes it.
func (e *NoSeriesError) Error() string {
	listed := make([]string, 0, len(e.Listed))
	for _, s := range e.Listed {
		listed = append(listed, s.String())
	}
	return fmt.Sprintf("%s has no release series for %s, only for %s: clusterctl refuses to install such a release, and every `clusterctl upgrade plan` that sees it fails: add the series, with the contract that the release's CRDs carry: %s",
		e.Path, e.Version, strings.Join(listed, ", "), e.Command)
}

// addCommand returns the command line that adds the series of a version to the file.
func (f *File) addCommand(version, contract string) string {
	return AddCommand(f.Path, version, contract)
}

// AddCommand returns the command line that adds the series of a version to a file, or begins the file with it.
func AddCommand(path, version, contract string) string {
	command := fmt.Sprintf("clusterctl release metadata add --version %s --contract %s", version, contract)
	if filepath.Clean(path) != release.MetadataFile {
		command += " --file " + shellWord(path)
	}
	return command
}

// plainWord is text that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord returns text as one word of a command line that can be pasted into a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// likelyContract returns the contract that a series that isn't listed most likely has: that of the
// next older series, or of the oldest where there is none. It is one that Add takes.
func (f *File) likelyContract(s Series) string {
	var below *Series
	oldest := f.series[0]
	for _, listed := range f.series {
		if listed.compare(oldest) < 0 {
			oldest = listed
		}
		if listed.compare(s) < 0 && (below == nil || listed.compare(*below) > 0) {
			below = &listed
		}
	}
	if below == nil {
		below = &oldest
	}
	if checkContract(below.Contract, s.compare(f.Newest()) > 0) != nil {
		return newestContract
	}
	return below.Contract
}
