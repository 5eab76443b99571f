package publish

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// ChecksumsFile is what lies beside the files of a release on a server: the SHA-256 of each, in the
// format of the program sha256sum.
const ChecksumsFile = "SHA256SUMS"

// bundle is what one version of a server's repository holds: the files of all providers that are
// released under that version, each name once.
type bundle struct {
	version  string
	releases []*release.Release
	// files are sorted by name and unique.
	files []release.File
}

// bundles puts releases together by their versions, the lowest version first. It is an error if two
// providers of a version have files of one name with other bytes: a version on a server is flat.
func bundles(releases []*release.Release) ([]*bundle, error) {
	var (
		all      []*bundle
		problems []error
	)
	for _, r := range releases {
		i := slices.IndexFunc(all, func(b *bundle) bool { return b.version == r.Version })
		if i < 0 {
			all = append(all, &bundle{version: r.Version})
			i = len(all) - 1
		}
		if err := all[i].add(r); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, b := range all {
		slices.SortFunc(b.files, func(x, y release.File) int { return strings.Compare(x.Name, y.Name) })
	}
	slices.SortStableFunc(all, func(x, y *bundle) int { return compareVersions(x.version, y.version) })
	return all, nil
}

// add puts a release's files into the bundle.
func (b *bundle) add(r *release.Release) error {
	var problems []error
	for _, f := range r.Files {
		if made(f.Name) {
			problems = append(problems, fmt.Errorf("%s has a file %s: a file of that name is made when it is published; take it out of the release", r, f.Name))
			continue
		}
		other, ok := b.file(f.Name)
		if ok && !bytes.Equal(other.Data, f.Data) {
			problems = append(problems, fmt.Errorf("%s and %s both have a file %s, with other bytes: they are published into one place, where a name is there once: give one of them another name, or publish them to places of their own",
				b.owner(f.Name), r, f.Name))
		}
		if !ok {
			b.files = append(b.files, f)
		}
	}
	b.releases = append(b.releases, r)
	return errors.Join(problems...)
}

// file returns the file of that name, or false.
func (b *bundle) file(name string) (release.File, bool) {
	for _, f := range b.files {
		if f.Name == name {
			return f, true
		}
	}
	return release.File{}, false
}

// owner returns the first release that has a file of that name.
func (b *bundle) owner(name string) *release.Release {
	for _, r := range b.releases {
		if _, ok := r.File(name); ok {
			return r
		}
	}
	return nil
}

// reads says whether clusterctl would read a file of that name for a provider of the bundle.
func (b *bundle) reads(name string) bool {
	return slices.ContainsFunc(b.releases, func(r *release.Release) bool { return r.Role(name) != release.RoleOther })
}

// plans returns the plan for each release of a bundle, by whether something is public for its
// version, and how the whole bundle differs from that.
func (b *bundle) plans(place string, there bool, differences []release.Difference, replace bool) []ReleasePlan {
	slices.SortFunc(differences, func(x, y release.Difference) int { return strings.Compare(x.File, y.File) })
	plans := make([]ReleasePlan, 0, len(b.releases))
	for _, r := range b.releases {
		plan := ReleasePlan{Release: r, Place: place, Differences: differences}
		switch {
		case !there:
			plan.Action = Create
		case len(differences) == 0:
			plan.Action = Unchanged
		case replace && replaceable(b.version):
			plan.Action = Replace
		default:
			plan.refuse(false)
		}
		plans = append(plans, plan)
	}
	return plans
}

// checksums returns the file SHA256SUMS of these files.
func checksums(files []release.File) release.File {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "%s  %s\n", digest(f.Data), f.Name)
	}
	return release.File{Name: ChecksumsFile, Data: []byte(b.String())}
}

// digest returns the SHA-256 of bytes in hexadecimal.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// made says whether publishing makes a file of that name beside those of the releases. What is
// published is compared without these files.
func made(name string) bool {
	return name == ChecksumsFile || name == ProvenanceFile
}

// compareVersions orders versions as semantic versions; texts that are none come first.
func compareVersions(a, b string) int {
	x, xErr := release.ParseVersion(a)
	y, yErr := release.ParseVersion(b)
	switch {
	case xErr != nil && yErr != nil:
		return strings.Compare(a, b)
	case xErr != nil:
		return -1
	case yErr != nil:
		return 1
	case x.LessThan(y):
		return -1
	case y.LessThan(x):
		return 1
	}
	return 0
}

// stable says whether a version is one that has no pre-release part.
func stable(version string) bool {
	v, err := release.ParseVersion(version)
	return err == nil && v.PreRelease() == ""
}
