package discover

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterctl-release/clusterctl-release/pkg/git"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// metadataFile is a metadata.yaml of the tree.
type metadataFile struct {
	path string
	// parsed is nil if clusterctl can't read the file as metadata.
	parsed *metadata.File
}

// addMetadata sets the metadata.yaml of each provider: the one that the build files release, else the one whose series
// fit the newest git tag best.
func (l *look) addMetadata(ctx context.Context) {
	newestTag := l.newestTag(ctx)
	released := l.evidence.released(func(name string) bool { return name == release.MetadataFile })
	released = slices.DeleteFunc(released, func(a asset) bool { return a.file == "" || a.use != forReleases })
	for i := range l.found.Providers {
		p := &l.found.Providers[i]
		if len(released) > 0 {
			best := slices.MaxFunc(released, func(a, b asset) int {
				return tree.SharedFolders(a.file, p.Kustomize) - tree.SharedFolders(b.file, p.Kustomize)
			})
			p.Metadata, p.metadataBy = best.file, best.place
			continue
		}
		files := l.metadataFiles(p)
		if len(files) == 0 {
			command := metadata.AddCommand(release.MetadataFile, cmp.Or(newestTag, "v0.1.0"), p.contract, len(l.found.Providers) > 1)
			p.Remarks = append(p.Remarks, fmt.Sprintf("No metadata.yaml was found: create it with `%s`.", command))
			continue
		}
		best := files[0]
		for _, file := range files[1:] {
			if file.fitsBetter(best, newestTag) {
				best = file
			}
		}
		p.Metadata = best.path
		if best.path != files[0].path {
			p.Remarks = append(p.Remarks, fmt.Sprintf("%s is used instead of %s, which lacks its newest series.", best.path, files[0].path))
		}
	}
}

// metadataFiles returns the files called metadata.yaml that may belong to a provider, the nearest first: those in the
// folders above its kustomization, then those that are in no other provider's folder.
func (l *look) metadataFiles(p *Provider) []metadataFile {
	above := func(file string, p Provider) bool {
		dir := path.Dir(file)
		return dir == "." || p.Kustomize == dir || strings.HasPrefix(p.Kustomize, dir+"/")
	}
	var near, far []metadataFile
	for _, name := range l.scan.files {
		if path.Base(name) != release.MetadataFile {
			continue
		}
		file := metadataFile{path: name}
		if data, err := l.tree.ReadFile(name); err == nil {
			file.parsed, _ = metadata.Parse(name, data)
		}
		others := slices.ContainsFunc(l.found.Providers, func(other Provider) bool { return other.Kustomize != p.Kustomize && above(name, other) })
		switch {
		case above(name, *p):
			near = append(near, file)
		case file.parsed != nil && !others && !l.isPart(name) && !isIn(path.Dir(name), "test", "tests"):
			far = append(far, file)
		}
	}
	slices.SortStableFunc(near, func(a, b metadataFile) int { return strings.Count(b.path, "/") - strings.Count(a.path, "/") })
	return append(near, far...)
}

// fitsBetter reports whether a file has the series of the newest tag and another one lacks it, or has newer series than
// the other.
func (f metadataFile) fitsBetter(other metadataFile, tag string) bool {
	if f.parsed == nil || other.parsed == nil {
		return f.parsed != nil
	}
	if _, ok := f.parsed.SeriesFor(tag); tag != "" {
		if _, otherOK := other.parsed.SeriesFor(tag); ok != otherOK {
			return ok
		}
	}
	mine, theirs := f.parsed.Newest(), other.parsed.Newest()
	return theirs.Major < mine.Major || theirs.Major == mine.Major && theirs.Minor < mine.Minor
}

// newestTag returns the newest git tag of the tree that is a version, or "" if there is none.
func (l *look) newestTag(ctx context.Context) string {
	tags, err := git.Tags(ctx, l.tree.Root())
	if err != nil {
		return "" // a tree without git, or a clone without tags
	}
	newest := ""
	var newestVersion *version.Version
	for _, tag := range tags {
		parsed, err := release.ParseVersion(tag)
		if err == nil && (newestVersion == nil || newestVersion.LessThan(parsed)) {
			newest, newestVersion = tag, parsed
		}
	}
	return newest
}
