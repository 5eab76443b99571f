package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// SourceFile is the file in a version folder in which a build records the release's source. It is not one of the
// release's files: releases are compared, checked and published without it.
const SourceFile = "clusterctl-release.source.json"

// Source is the source of a release.
type Source struct {
	// Repository is the URL of the repository, or "" if git knows none.
	Repository string `json:"repository,omitempty"`
	// Commit is the full hash of the checked-out commit.
	Commit string `json:"commit"`
	// Modified means that the tree differed from the commit: files were changed, added or removed.
	Modified bool `json:"modified,omitempty"`
	// MergeRef is the ref of a pull or merge request's merge, if the commit is one; no branch contains such a commit.
	MergeRef string `json:"mergeRef,omitempty"`
	// Tool is the version of clusterctl-release that built the release.
	Tool string `json:"tool,omitempty"`
	// Files are the SHA-256 digests of the built files, by name.
	Files map[string]string `json:"files"`
}

// commitName matches the full hash of a commit.
var commitName = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// parseSource reads the record in a version folder.
func parseSource(data []byte) (*Source, error) {
	s := &Source{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s does not have the form that a build writes: %w: build the release again, or remove the file", SourceFile, err)
	}
	if !commitName.MatchString(s.Commit) {
		return nil, fmt.Errorf("%s: commit is %q, which is not the full hash of a commit: build the release again, or remove the file", SourceFile, s.Commit)
	}
	return s, nil
}

// File returns the record as the file SourceFile.
func (s *Source) File() (File, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	return File{Name: SourceFile, Data: append(data, '\n')}, err
}

// SameCommit reports whether two records name the same commit of the same repository, and the same tool.
func (s *Source) SameCommit(other *Source) bool {
	return s.Repository == other.Repository && s.Commit == other.Commit && s.Modified == other.Modified &&
		s.MergeRef == other.MergeRef && s.Tool == other.Tool
}

// Record sets the source of the release, with the digests of its current files.
func (r *Release) Record(source Source) {
	source.Files = make(map[string]string, len(r.Files))
	for _, f := range r.Files {
		source.Files[f.Name] = Digest(f.Data)
	}
	r.Source = &source
}

// ChangedSinceBuild compares the built files (first) with those of the release (second). It returns none for a release
// without a Source.
func (r *Release) ChangedSinceBuild() []Difference {
	if r.Source == nil {
		return nil
	}
	var differences []Difference
	for _, f := range r.Files {
		switch sum, ok := r.Source.Files[f.Name]; {
		case !ok:
			differences = append(differences, Difference{f.Name, "extra"})
		case sum != Digest(f.Data):
			differences = append(differences, Difference{f.Name, "differs"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Source.Files)) {
		if _, ok := r.File(name); !ok {
			differences = append(differences, Difference{name, "missing"})
		}
	}
	return differences
}

// Digest returns the SHA-256 of bytes in hexadecimal.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
