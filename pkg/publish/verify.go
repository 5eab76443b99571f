package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/provenance"
	"github.com/clusterctl-release/clusterctl-release/pkg/publish/store"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// readRelease is a published release that was read.
type readRelease struct {
	release *release.Release
	// generated are the files that publishing added to those of the release.
	generated []release.File
	// problems are what is wrong with the place, whatever the files are.
	problems []error
	// verify reads the release again as clusterctl does; nil where that does not read from there.
	verify func(ctx context.Context) error
	// note says what can't be verified at this place; it may be empty.
	note string
}

// Verification is what a look at published releases brought.
type Verification struct {
	Releases []*release.Release
	// Problems are what is wrong with them.
	Problems []error
	// Notes are what could not be verified, or what was found out.
	Notes []string
}

// Verify reads published releases as Read does, reads every file again as clusterctl does, and holds
// the files against the checksums and the provenance published with them. The key is a file with the public
// key that the provenance has to be signed with; without one a signature is not looked at. An error
// means that the releases could not be read; what is wrong with them is in the result.
func Verify(ctx context.Context, location, key string, opts Options) (*Verification, error) {
	all, err := readAll(ctx, location, opts)
	if err != nil {
		return nil, err
	}
	v := &Verification{}
	for _, f := range all {
		v.Releases = append(v.Releases, f.release)
		if f.note != "" && !slices.Contains(v.Notes, f.note) {
			v.Notes = append(v.Notes, f.note)
		}
		v.Problems = append(v.Problems, f.problems...)
		if f.verify != nil {
			if err := f.verify(ctx); err != nil {
				v.Problems = append(v.Problems, err)
			}
		}
		v.checkGenerated(ctx, f, key)
	}
	return v, ctx.Err()
}

// checkGenerated compares a release with its checksums and its provenance.
func (v *Verification) checkGenerated(ctx context.Context, f readRelease, key string) {
	r := f.release
	problem := func(err error) {
		if err != nil {
			v.Problems = append(v.Problems, fmt.Errorf("%s: %w", r, err))
		}
	}
	sums, statement := generatedFile(f.generated, ChecksumsFile), generatedFile(f.generated, ProvenanceFile)
	if sums == nil {
		v.Notes = append(v.Notes, fmt.Sprintf("%s has no file %s", r, ChecksumsFile))
	} else {
		problem(checkChecksums(sums, r.Files))
	}
	switch {
	case statement != nil:
		claim, err := provenance.Check(ctx, statement, r.Version, r.Files, key)
		problem(err)
		if err == nil {
			v.Notes = append(v.Notes, fmt.Sprintf("%s says that it was built from %s", r, claim))
		}
	case key != "":
		problem(fmt.Errorf("there is no %s to verify with the key", ProvenanceFile))
	default:
		v.Notes = append(v.Notes, fmt.Sprintf("%s has no file %s", r, ProvenanceFile))
	}
}

func generatedFile(files []release.File, name string) []byte {
	for _, f := range files {
		if f.Name == name {
			return f.Data
		}
	}
	return nil
}

// checkChecksums holds files against their checksums.
func checkChecksums(text []byte, files []release.File) error {
	sums, err := store.ParseChecksums(text)
	if err != nil {
		return err
	}
	var problems []error
	for _, f := range files {
		switch sum, ok := sums[f.Name]; {
		case !ok:
			problems = append(problems, fmt.Errorf("%s does not name %s", ChecksumsFile, f.Name))
		case sum != store.Digest(f.Data):
			problems = append(problems, fmt.Errorf("%s names other bytes for %s", ChecksumsFile, f.Name))
		}
	}
	return errors.Join(problems...)
}
