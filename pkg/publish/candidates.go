package publish

import (
	"errors"
	"fmt"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// candidates checks releases before anything is done with them, and returns them in their order
// without those that were given twice. It is an error if clusterctl could not use one of them, or
// if two have the same provider and version and other bytes.
// Source: clusterctl provider contract, "Provider Repositories".
func candidates(releases []*release.Release) ([]*release.Release, error) {
	if len(releases) == 0 {
		return nil, errors.New("there is no release to publish")
	}
	var (
		checked  []*release.Release
		problems []error
	)
	for _, given := range releases {
		r, err := candidate(given)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		twin := ofVersion(checked, r.Provider, r.Version)
		if twin == nil {
			checked = append(checked, r)
			continue
		}
		for _, d := range twin.Differences(r) {
			problems = append(problems, fmt.Errorf("%s is given twice, with other bytes: %s: publish one of them", r, d.File))
		}
	}
	return checked, errors.Join(problems...)
}

// candidate checks one release and returns it with its files in order.
func candidate(given *release.Release) (*release.Release, error) {
	r, err := release.New(given.Provider, given.Version, given.Files)
	if err != nil {
		return nil, fmt.Errorf("checking the release: %w", err)
	}
	r.Source = given.Source
	var missing []error
	for _, name := range []string{r.Provider.ComponentsFile(), release.MetadataFile} {
		if _, ok := r.File(name); !ok {
			missing = append(missing, fmt.Errorf("%s has no file %s: clusterctl needs it; add it to the release", r, name))
		}
	}
	return r, errors.Join(missing...)
}

// ofVersion returns the release of a provider and version, or nil.
func ofVersion(releases []*release.Release, provider release.Provider, version string) *release.Release {
	for _, r := range releases {
		if r.Provider == provider && r.Version == version {
			return r
		}
	}
	return nil
}
