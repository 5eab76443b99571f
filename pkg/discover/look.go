// Package discover finds what a source tree could release, and writes a first release file for it.
package discover

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// ErrNoProvider means that the tree contains no provider.
var ErrNoProvider = errors.New("no provider found")

// Found is the content of a tree that could be released.
type Found struct {
	Providers []Provider
	// Doubts are decisions for the maintainer.
	Doubts []string
}

// Provider is one provider of a tree, with remarks on guesses.
type Provider struct {
	release.ProviderConfig
	// Remarks name the guesses in the entry, and the values to fill in.
	Remarks []string
	// unplaced are images that clusterctl would refuse under their current names.
	unplaced []string
	// contract is the newest contract in the labels of the CRDs, or "".
	contract string
	// builtBy, metadataBy and templatesBy are the places in build files where the kustomization, the metadata.yaml and
	// the templates are released, or "".
	builtBy, metadataBy, templatesBy string
	// templates and classes are the numbers of files of the entries.
	templates, classes int
}

// Watch has functions that report progress.
type Watch struct {
	// Building is called with the folder that is built, and Fetching with each base that is fetched for it.
	Building, Fetching func(what string)
}

// Look builds the kustomizations of a tree and returns the providers in them, in the order of clusterctl's provider
// types and then of their paths, with their metadata, templates and classes. Files that the tree's build files release
// take precedence. The error is ErrNoProvider without a provider.
func Look(ctx context.Context, t *tree.Tree, watch Watch) (*Found, error) {
	s, err := scan(t)
	if err != nil {
		return nil, err
	}
	l := &look{tree: t, scan: s, evidence: readEvidence(t, s), found: &Found{}, results: map[string][]unstructured.Unstructured{}, hosts: map[string]error{}}
	l.components = l.evidence.released(isComponents)
	for _, dir := range l.candidates() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		watch.Building("building " + t.Display(dir))
		l.try(ctx, dir, watch)
	}
	if len(l.found.Providers) == 0 {
		return nil, l.noProvider()
	}
	l.mentionOthers()
	l.addMetadata(ctx)
	l.addTemplates()
	sort.SliceStable(l.found.Providers, func(i, j int) bool {
		return l.found.Providers[i].Type.Order() < l.found.Providers[j].Type.Order()
	})
	return l.found, nil
}

// look is the state of Look.
type look struct {
	tree     *tree.Tree
	scan     *scanned
	evidence *evidence
	// components are the components YAMLs that the build files create.
	components []asset
	found      *Found
	// results are those of kustomizations without a provider.
	results map[string][]unstructured.Unstructured
	// hosts are the hosts of remote bases, with the errors of unreachable ones.
	hosts map[string]error
	// broken is the number of kustomizations that do not build.
	broken int
}

// candidates returns the folders that may contain a provider or a flavor: those from which the build files create a
// components YAML, then those whose place suggests it.
func (l *look) candidates() []string {
	var dirs []string
	for _, a := range l.components {
		if a.kustomize != "" && !slices.Contains(dirs, a.kustomize) {
			dirs = append(dirs, a.kustomize)
		}
	}
	for _, dir := range l.scan.candidates() {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// try builds a kustomization and keeps the result.
func (l *look) try(ctx context.Context, dir string, watch Watch) {
	for _, p := range l.found.Providers {
		// An overlay of a provider is the same provider, and a part of it is not a provider.
		if l.scan.reaches(dir, p.Kustomize) || l.scan.reaches(p.Kustomize, dir) {
			return
		}
	}
	if !l.fetch(ctx, dir, watch) {
		return
	}
	var released asset // the components YAML that the build files create from the kustomization
	at := slices.IndexFunc(l.components, func(a asset) bool { return a.kustomize == dir })
	isReleased := at >= 0
	if isReleased {
		released = l.components[at]
	}
	objects, err := l.build(dir)
	if err != nil {
		if isReleased || l.scan.isRoot(dir) {
			l.broken++
			reason := err.Error()
			if failed := (*tree.KustomizeError)(nil); errors.As(err, &failed) && failed.Missing != "" {
				reason = failed.Missing // kustomize repeats it in several lines
			}
			l.doubt("%s does not build: %s", dir, reason)
		}
		return
	}
	images := managerImages(objects)
	if images == nil {
		l.results[dir] = objects
		return
	}
	p := identify(l.tree, dir, objects, released.name)
	for _, other := range l.found.Providers {
		if other.Provider() == p.Provider() {
			l.doubt("%s also contains %s; %s is used", dir, p.Provider().Label(), other.Kustomize)
			return
		}
	}
	switch buildFile := l.buildFile(); {
	case isReleased:
		p.builtBy = released.place
	case isIn(dir, "test", "tests") && p.Type == clusterctlv1.RuntimeExtensionProviderType:
		l.doubt("%s contains %s, which looks like an extension for tests: it is skipped", dir, p.Provider().Label())
		return
	case buildFile != "" && len(p.Remarks) > 0:
		l.doubt("%s has a manager without a provider's label, and %s does not release it: it is skipped", dir, buildFile)
		return
	case buildFile != "":
		p.Remarks = append(p.Remarks, fmt.Sprintf("%s does not release it: remove the entry if it should not be released.", buildFile))
	}
	p.setImages(images)
	p.contract = metadata.ContractOf(objects)
	l.found.Providers = append(l.found.Providers, p)
}

// build returns the objects of a kustomization.
func (l *look) build(dir string) ([]unstructured.Unstructured, error) {
	resources, err := l.tree.Kustomize(dir)
	if err != nil {
		return nil, err
	}
	return components.ObjectsOf(resources)
}

// buildFile returns the first build file that releases a provider, or "".
func (l *look) buildFile() string {
	for _, p := range l.found.Providers {
		if file, _, ok := strings.Cut(p.builtBy, ":"); ok {
			return file
		}
	}
	return ""
}

// mentionOthers names the other YAML files that the build files create from kustomizations for a release.
func (l *look) mentionOthers() {
	for _, a := range l.evidence.released(func(name string) bool { return path.Ext(name) == ".yaml" }) {
		taken := slices.ContainsFunc(l.found.Providers, func(p Provider) bool { return p.Kustomize == a.kustomize })
		if a.use == forReleases && a.kustomize != "" && !taken && !isComponents(a.name) && !release.IsClusterTemplate(a.name) && !release.IsClusterClass(a.name) {
			l.doubt("%s also releases %s: release it with 'kustomize: %s' and 'as: %s' under files", a.place, a.name, a.kustomize, a.name)
		}
	}
}

// doubt records a decision for the maintainer.
func (l *look) doubt(format string, args ...any) {
	l.found.Doubts = append(l.found.Doubts, strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// noProvider returns the error for a tree without a provider.
func (l *look) noProvider() error {
	why := fmt.Sprintf("none of its %d kustomizations has a Deployment with a container called \"manager\"", len(l.scan.kustomizations))
	switch {
	case l.broken == 1:
		why = "a kustomization does not build"
	case l.broken > 1:
		why = fmt.Sprintf("%d kustomizations do not build", l.broken)
	default:
		if file := l.plainComponents(); file != "" {
			l.doubt("%s has such a Deployment: write a kustomization.yaml into its folder with the line 'resources: [%s]'", file, path.Base(file))
		}
	}
	return fmt.Errorf("%w in %s: %s%s", ErrNoProvider, l.tree.Display("."), why, indented(l.found.Doubts))
}

// plainComponents returns a YAML file with a provider's Deployment that is in no kustomization, or "".
func (l *look) plainComponents() string {
	for _, file := range byDepth(l.scan.files) {
		data, err := l.tree.ReadFile(file)
		if err != nil || !deploymentKind.Match(data) {
			continue // a link out of the tree, or another kind of file
		}
		objects, err := manifest.Parse(file, data)
		if err != nil {
			continue // a template of a chart, for instance
		}
		for _, o := range objects {
			if managerImages([]unstructured.Unstructured{o.Object}) != nil {
				return file
			}
		}
	}
	return ""
}

// deploymentKind matches the line with the kind of a Deployment.
var deploymentKind = regexp.MustCompile(`(?m)^kind: *["']?Deployment\b`)

// indented returns lines to put below a message, or "".
func indented(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return ":\n  " + strings.Join(lines, "\n  ")
}
