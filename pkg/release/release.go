package release

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// MetadataFile is the name of the metadata YAML in every provider repository.
// Source: clusterctl provider contract, "Metadata YAML".
const MetadataFile = "metadata.yaml"

// MaxFileSize is the size limit, in bytes, of a file that clusterctl reads. The largest published one has a 25th of it.
const MaxFileSize = 32 << 20

// Role is the role of a file in a release.
type Role string

// The roles that clusterctl knows, and Other for files that it never reads.
const (
	RoleComponents      Role = "components"
	RoleMetadata        Role = "metadata"
	RoleClusterTemplate Role = "cluster-template"
	RoleClusterClass    Role = "clusterclass"
	RoleOther           Role = "other"
)

// File is one file of a release.
type File struct {
	// Name is the file's name, without a folder: a provider repository is flat.
	Name string
	// Data is the content of the published file.
	Data []byte
}

// Release is the set of files of one provider at one version.
type Release struct {
	Provider Provider
	// Version is the release's version in clusterctl's form, with its leading v, e.g. "v0.1.0".
	Version string
	// Files are sorted by name and unique.
	Files []File
	// Source is the record of its build; nil for a release without a record, such as one from another builder or from a
	// server.
	Source *Source
}

// New returns a release with its files in order. It is an error if the version isn't a semantic
// version with a leading v, if a name is not that of a plain file, or if two files share a name.
func New(provider Provider, version string, files []File) (*Release, error) {
	if err := provider.Validate(); err != nil {
		return nil, err
	}
	if _, err := ParseVersion(version); err != nil {
		return nil, err
	}
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	for i, f := range sorted {
		if f.Name == "" || f.Name == "." || f.Name == ".." || strings.ContainsAny(f.Name, `/\`) {
			return nil, fmt.Errorf("%s %s: %q isn't a file name: a provider repository has no folders below the version", provider.Label(), version, f.Name)
		}
		if i > 0 && sorted[i-1].Name == f.Name {
			return nil, fmt.Errorf("%s %s: two files are called %q", provider.Label(), version, f.Name)
		}
	}
	return &Release{Provider: provider, Version: version, Files: sorted}, nil
}

// String returns the provider's label and the version, e.g. "infrastructure-libvirt v0.1.0".
func (r *Release) String() string {
	return r.Provider.Label() + " " + r.Version
}

// File returns the file of that name, or false.
func (r *Release) File(name string) (File, bool) {
	i, ok := slices.BinarySearchFunc(r.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
	if !ok {
		return File{}, false
	}
	return r.Files[i], true
}

// Components returns the components YAML, or false if the release has none.
func (r *Release) Components() (File, bool) {
	return r.File(r.Provider.ComponentsFile())
}

// Role returns the role of a file of this release, by the names of the contract.
// Source: clusterctl provider contract, the sections "Naming conventions".
func (r *Release) Role(name string) Role {
	switch {
	case name == r.Provider.ComponentsFile():
		return RoleComponents
	case name == MetadataFile:
		return RoleMetadata
	case IsClusterTemplate(name):
		return RoleClusterTemplate
	case IsClusterClass(name):
		return RoleClusterClass
	}
	return RoleOther
}

var (
	coreGroup = regexp.MustCompile(`(?m)^apiVersion: *["']?cluster\.x-k8s\.io/`)
	kindLine  = regexp.MustCompile(`(?m)^kind: *["']?(\w+)["']?\s*$`)
)

// HasKind reports whether the file has an object of a kind of Cluster API's core group. It does not parse the file,
// which may have any content, and isn't always YAML before its variables are replaced.
func (f File) HasKind(kind string) bool {
	for document := range bytes.SplitSeq(f.Data, []byte("\n---")) {
		match := kindLine.FindSubmatch(document)
		if match != nil && string(match[1]) == kind && coreGroup.Match(document) {
			return true
		}
	}
	return false
}

// IsMisnamedClass reports whether a file has a ClusterClass under a name with which clusterctl does not find it.
func (r *Release) IsMisnamedClass(f File) bool {
	isYAML := strings.HasSuffix(f.Name, ".yaml") || strings.HasSuffix(f.Name, ".yml")
	return isYAML && r.Role(f.Name) == RoleOther && f.HasKind("ClusterClass")
}

// Difference names a file that differs between two releases.
type Difference struct {
	File string
	// Kind is "missing" if only the first release has the file, "extra" if only the second has it, and "differs" if the
	// bytes differ.
	Kind string
}

// Differences compares two releases file by file, byte for byte. None means that they are equal.
func (r *Release) Differences(other *Release) []Difference {
	var differences []Difference
	for _, f := range r.Files {
		o, ok := other.File(f.Name)
		switch {
		case !ok:
			differences = append(differences, Difference{f.Name, "missing"})
		case !bytes.Equal(f.Data, o.Data):
			differences = append(differences, Difference{f.Name, "differs"})
		}
	}
	for _, f := range other.Files {
		if _, ok := r.File(f.Name); !ok {
			differences = append(differences, Difference{f.Name, "extra"})
		}
	}
	return differences
}

// ParseVersion parses a release's version. clusterctl accepts a version with and without the leading v, but looks
// releases up with it, so it never finds a release that is published without it.
//
// Source: clusterctl provider contract, "Creating a local provider repository".
func ParseVersion(s string) (*version.Version, error) {
	v, err := version.ParseSemantic(s)
	if err != nil {
		return nil, fmt.Errorf("version %q isn't a semantic version: write it as vMAJOR.MINOR.PATCH, e.g. v0.1.0 or v0.1.0-rc.0", s)
	}
	if !strings.HasPrefix(s, "v") {
		return nil, fmt.Errorf("version %q lacks the leading v: write v%s", s, s)
	}
	if "v"+v.String() != s {
		return nil, fmt.Errorf("version %q does not have the form that clusterctl looks up: write v%s", s, v.String())
	}
	return v, nil
}
