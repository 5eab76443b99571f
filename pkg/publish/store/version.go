package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

const (
	// ChecksumsFile is what lies beside the files of a release on a server: the SHA-256 of each, in the
	// format of the program sha256sum.
	ChecksumsFile = "SHA256SUMS"
	// ProvenanceFile says where the files come from, where their build recorded it.
	ProvenanceFile = provenance.File
)

// Version is what one version of a server's repository holds: the files of all providers that are
// released under that version, each name once.
type Version struct {
	Number   string
	Releases []*release.Release
	// Files are sorted by name and unique.
	Files []release.File
}

// Versions puts releases together by their versions, the lowest version first. It is an error if two
// providers of a version have files of one name with other bytes: a version on a server is flat.
func Versions(releases []*release.Release) ([]*Version, error) {
	var (
		all      []*Version
		problems []error
	)
	for _, r := range releases {
		i := slices.IndexFunc(all, func(v *Version) bool { return v.Number == r.Version })
		if i < 0 {
			all = append(all, &Version{Number: r.Version})
			i = len(all) - 1
		}
		if err := all[i].add(r); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, v := range all {
		slices.SortFunc(v.Files, func(x, y release.File) int { return strings.Compare(x.Name, y.Name) })
	}
	slices.SortStableFunc(all, func(x, y *Version) int { return Compare(x.Number, y.Number) })
	return all, nil
}

// add puts a release's files into the version.
func (v *Version) add(r *release.Release) error {
	var problems []error
	for _, f := range r.Files {
		if Made(f.Name) {
			problems = append(problems, fmt.Errorf("%s has a file %s: a file of that name is made when it is published; take it out of the release", r, f.Name))
			continue
		}
		other, ok := v.File(f.Name)
		if ok && !bytes.Equal(other.Data, f.Data) {
			problems = append(problems, fmt.Errorf("%s and %s both have a file %s, with other bytes: they are published into one place, where a name is there once: give one of them another name, or publish them to places of their own",
				v.Owner(f.Name), r, f.Name))
		}
		if !ok {
			v.Files = append(v.Files, f)
		}
	}
	v.Releases = append(v.Releases, r)
	return errors.Join(problems...)
}

// File returns the file of that name, or false.
func (v *Version) File(name string) (release.File, bool) {
	for _, f := range v.Files {
		if f.Name == name {
			return f, true
		}
	}
	return release.File{}, false
}

// Owner returns the first release that has a file of that name, or, for what lies beside them, the first.
func (v *Version) Owner(name string) *release.Release {
	for _, r := range v.Releases {
		if _, ok := r.File(name); ok {
			return r
		}
	}
	return v.Releases[0]
}

// Reads says whether clusterctl would read a file of that name for a provider of the version.
func (v *Version) Reads(name string) bool {
	return slices.ContainsFunc(v.Releases, func(r *release.Release) bool { return r.Role(name) != release.RoleOther })
}

// Checksums returns the file SHA256SUMS of the version's files.
func (v *Version) Checksums() release.File {
	var b strings.Builder
	for _, f := range v.Files {
		fmt.Fprintf(&b, "%s  %s\n", Digest(f.Data), f.Name)
	}
	return release.File{Name: ChecksumsFile, Data: []byte(b.String())}
}

// Releases returns the releases of versions, in their order.
func Releases(all []*Version) []*release.Release {
	var releases []*release.Release
	for _, v := range all {
		releases = append(releases, v.Releases...)
	}
	return releases
}

// Digest returns the SHA-256 of bytes in hexadecimal.
func Digest(data []byte) string { return release.Digest(data) }

// Made says whether publishing makes a file of that name beside those of the releases. What is
// published is compared without these files.
func Made(name string) bool {
	return name == ChecksumsFile || name == ProvenanceFile
}

// Compare orders versions as semantic versions; texts that are none come first.
func Compare(a, b string) int {
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

// Stable says whether a version is one that has no pre-release part.
func Stable(version string) bool {
	v, err := release.ParseVersion(version)
	return err == nil && v.PreRelease() == ""
}

// HighestStable returns the highest of these versions that has no pre-release part, or "".
func HighestStable(versions []string) string {
	highest := ""
	for _, v := range versions {
		if Stable(v) && (highest == "" || Compare(v, highest) > 0) {
			highest = v
		}
	}
	return highest
}

// MediaType returns the media type that a file is uploaded with.
func MediaType(name string) string {
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		return "application/yaml"
	}
	return "application/octet-stream"
}

// Replaceable says whether a version may be published again with other bytes: those with a
// pre-release part and 0.0.0, which nobody takes for final.
func Replaceable(text string) bool {
	v, err := release.ParseVersion(text)
	if err != nil {
		return false
	}
	return v.PreRelease() != "" || v.Major() == 0 && v.Minor() == 0 && v.Patch() == 0
}

// Newer says whether clusterctl would take a version rather than another one when it is asked for
// none: the higher, and one without a pre-release part rather than one with it.
func Newer(version, than string) bool {
	if Stable(version) != Stable(than) {
		return Stable(version)
	}
	return Compare(version, than) > 0
}
