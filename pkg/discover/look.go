// Package discover finds what a source tree could release by looking at it, and writes a first
// release file for it.
package discover

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"sigs.k8s.io/kustomize/api/resmap"

	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// ErrNoProvider says that nothing in a tree looks like a provider.
var ErrNoProvider = errors.New("no provider found")

// Found is what a tree could release.
type Found struct {
	Providers []Provider
	// Doubts are what could not be told, for the maintainer to decide.
	Doubts []string
}

// Provider is one provider that was found, with remarks on what was guessed.
type Provider struct {
	release.ProviderConfig
	// Remarks say what in the entry was guessed, or has to be filled in.
	Remarks []string
	// unplaced are images that clusterctl would refuse under the name they have.
	unplaced []string
}

// Look builds the kustomizations of a tree and returns the providers that they give, in the order
// of clusterctl's provider types and then of their paths, with the metadata, templates and classes
// that go with them. progress is told what is being built. The error is ErrNoProvider where there is none.
func Look(ctx context.Context, t *tree.Tree, progress func(string)) (*Found, error) {
	s, err := scan(t)
	if err != nil {
		return nil, err
	}
	l := &look{tree: t, scan: s, found: &Found{}, results: map[string]resmap.ResMap{}}
	for _, dir := range s.candidates() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		progress("building " + t.Display(dir))
		l.try(dir)
	}
	if len(l.found.Providers) == 0 {
		return nil, fmt.Errorf("%w in %s: none of its %d kustomizations gives a Deployment with a container called \"manager\"%s",
			ErrNoProvider, t.Display("."), len(s.kustomizations), indented(l.found.Doubts))
	}
	l.addMetadata()
	l.addTemplates()
	sort.SliceStable(l.found.Providers, func(i, j int) bool {
		return l.found.Providers[i].Type.Order() < l.found.Providers[j].Type.Order()
	})
	return l.found, nil
}

// look is one look at a tree.
type look struct {
	tree  *tree.Tree
	scan  *scanned
	found *Found
	// results are those of kustomizations that give no provider.
	results map[string]resmap.ResMap
}

// try builds a kustomization and keeps what it gives.
func (l *look) try(dir string) {
	for _, p := range l.found.Providers {
		// An overlay of a provider is the provider once more, and a part of it is none.
		if l.scan.reaches(dir, p.Kustomize) || l.scan.reaches(p.Kustomize, dir) {
			return
		}
	}
	result, err := l.tree.Kustomize(dir)
	if err != nil {
		if l.scan.isRoot(dir) {
			l.doubt("%s does not build: %v", dir, err)
		}
		return
	}
	images := managerImages(result)
	if images == nil {
		l.results[dir] = result
		return
	}
	p := identify(l.tree, dir, result)
	for _, other := range l.found.Providers {
		if other.Provider() == p.Provider() {
			l.doubt("%s gives %s too; %s is taken", dir, p.Provider().Label(), other.Kustomize)
			return
		}
	}
	p.setImages(images)
	l.found.Providers = append(l.found.Providers, p)
}

// doubt records what could not be told.
func (l *look) doubt(format string, args ...any) {
	l.found.Doubts = append(l.found.Doubts, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// addMetadata gives each provider the nearest metadata.yaml, from its own folder upwards.
func (l *look) addMetadata() {
	for i := range l.found.Providers {
		p := &l.found.Providers[i]
		p.Metadata = ""
		for dir := p.Kustomize; ; dir = path.Dir(dir) {
			if file := path.Join(dir, release.MetadataFile); slices.Contains(l.scan.files, file) {
				p.Metadata = file
				break
			}
			if dir == "." {
				break
			}
		}
		if p.Metadata == "" {
			p.Remarks = append(p.Remarks, "No metadata.yaml was found: begin it with `clusterctl release metadata add`.")
		}
	}
}

// indented returns lines to put below a message, or "".
func indented(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return ":\n  " + strings.Join(lines, "\n  ")
}
