package checks

import (
	"errors"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
	"github.com/clusterctl-release/clusterctl-release/pkg/move"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
	"github.com/clusterctl-release/clusterctl-release/pkg/tree"
)

// Subject is a release that is checked, with what there is to know about it. What its files hold is
// read once, when the first check asks for it. A Subject is for one Run.
type Subject struct {
	Release *release.Release
	// Previous is the release before this one, or nil.
	Previous *release.Release
	// With are releases of other providers whose kinds the templates use.
	With []*release.Release
	// Config is the provider's entry in its tree's release file, or nil where that is not known.
	Config *release.ProviderConfig
	// Source is the tree that the release is made from, or nil where that is not known.
	Source *Source
	// WantsGraphs asks for the owner graphs of the templates in the Result: they take much memory.
	WantsGraphs bool

	// derived has what OnceValue and OnceValues derived.
	derived sync.Map
	// graphs are those that WantsGraphs asks for.
	graphs []TemplateGraph
}

// parsed are the objects of a file, with the error at which reading ended.
type parsed struct {
	documents []*manifest.Document
	err       *manifest.SyntaxError
}

// Source is a source tree with its release file.
type Source struct {
	Tree   *tree.Tree
	Config *release.Config
}

// KeepGraph keeps the owner graph of a template for the Result, where WantsGraphs asks for it.
func (s *Subject) KeepGraph(template string, graph *move.Graph) {
	if s.WantsGraphs {
		s.graphs = append(s.graphs, TemplateGraph{Template: template, Graph: graph})
	}
}

// Components returns the objects of the components YAML; what was read before a syntax error is
// among them. The error is nil where the release has no components at all.
func (s *Subject) Components() ([]*manifest.Document, *manifest.SyntaxError) {
	p := readComponents(s)
	return p.documents, p.err
}

var readComponents = OnceValue(func(s *Subject) parsed {
	file, ok := s.Release.Components()
	if !ok {
		return parsed{}
	}
	documents, err := manifest.Parse(file.Name, file.Data)
	if err != nil {
		// What a variable stands for may be what makes it YAML: clusterctl reads it substituted.
		if rendered, ok := templates.WithDefaults(file.Data); ok {
			if substituted, again := manifest.Parse(file.Name, rendered); again == nil {
				documents, err = substituted, nil
			}
		}
	}
	var syntax *manifest.SyntaxError
	errors.As(err, &syntax)
	return parsed{documents, syntax}
})

// Objects returns the objects of the components YAML of the given kinds, or all of them. Where the
// file can't be read to its end there are none: what one object names may be in the part that is not
// read, and components-parse says so.
func (s *Subject) Objects(kinds ...string) []*manifest.Document {
	documents, err := s.Components()
	if err != nil {
		return nil
	}
	if len(kinds) == 0 {
		return documents
	}
	var chosen []*manifest.Document
	for _, d := range documents {
		if slices.Contains(kinds, d.Object.GetKind()) {
			chosen = append(chosen, d)
		}
	}
	return chosen
}

// Object returns the object of a kind and name. clusterctl puts all into one namespace, so none is asked for.
func (s *Subject) Object(kind, name string) *manifest.Document {
	for _, d := range s.Objects(kind) {
		if d.Object.GetName() == name {
			return d
		}
	}
	return nil
}

// Metadata returns metadata.yaml. The file is nil if the release has none, and if there is an error.
func (s *Subject) Metadata() (*metadata.File, error) {
	return readMetadata(s)()
}

var readMetadata = OnceValue(func(s *Subject) func() (*metadata.File, error) {
	return sync.OnceValues(func() (*metadata.File, error) {
		file, ok := s.Release.File(release.MetadataFile)
		if !ok {
			return nil, nil
		}
		return metadata.Parse(file.Name, file.Data)
	})
})

// CRD is a custom resource definition of the components.
type CRD = contract.CRD

// CRDs returns the custom resource definitions of the components. One that does not fit its own
// Go type is left out; the API server would refuse it, and crd-valid says so.
func (s *Subject) CRDs() []CRD {
	return readCRDs(s)
}

var readCRDs = OnceValue(func(s *Subject) []CRD { return contract.ReadCRDs(s.Objects("CustomResourceDefinition")) })

// KnownKinds returns the kinds of this release, of those it is checked with, and of the core. What
// can't be read of another release is left out: it is that release's own to be checked.
func (s *Subject) KnownKinds() *schemas.Kinds {
	return readKinds(s)
}

var readKinds = OnceValue(func(s *Subject) *schemas.Kinds { return schemas.Of(s.KnownCRDs()...) })

// KnownCRDs returns the CRDs of the release and of those it is checked with.
func (s *Subject) KnownCRDs() []*apiextensionsv1.CustomResourceDefinition {
	var crds []*apiextensionsv1.CustomResourceDefinition
	for i := range s.CRDs() {
		crds = append(crds, &s.CRDs()[i].CustomResourceDefinition)
	}
	for _, r := range s.With {
		if found, err := schemas.CRDs(r); err == nil {
			crds = append(crds, found...)
		}
	}
	return crds
}

// At returns the place of a file of the release as a whole; "" is the release itself.
func (s *Subject) At(file string) manifest.Place {
	return manifest.Place{File: file}
}

// AtLine returns the place of a line of a file; 0 is the file as a whole.
func (s *Subject) AtLine(file string, line int) manifest.Place {
	return manifest.Place{File: file, Line: line}
}
