package checks

import (
	"context"
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

// Subject is a release that is checked, with its context. The content of its files is read once, when the first check
// needs it. A Subject is for one Run.
type Subject struct {
	Release *release.Release
	// Previous is the previous release this one, or nil.
	Previous *release.Release
	// With are releases of other providers whose kinds the templates use.
	With []*release.Release
	// Config is the provider's entry in its tree's release file, or nil if it is not known.
	Config *release.ProviderConfig
	// Source is the source tree of the release, or nil if it is not known.
	Source *Source
	// WantsGraphs requests the owner graphs of the templates in the Result: they take much memory.
	WantsGraphs bool

	// derived contains the values that OnceValue and OnceValues derived.
	derived sync.Map
	// graphs are the graphs that WantsGraphs requests.
	graphs []TemplateGraph
}

// Source is a source tree with its release file.
type Source struct {
	Tree   *tree.Tree
	Config *release.Config
}

// KeepGraph keeps the owner graph of a template for the Result, if WantsGraphs is set.
func (s *Subject) KeepGraph(template string, graph *move.Graph) {
	if s.WantsGraphs {
		s.graphs = append(s.graphs, TemplateGraph{Template: template, Graph: graph})
	}
}

// Components returns the objects of the components YAML, including those before a syntax error. The error is nil if the
// release has no components.
func (s *Subject) Components() ([]*manifest.Document, *manifest.SyntaxError) {
	return readComponents(context.Background(), s)
}

var readComponents = OnceValues(func(_ context.Context, s *Subject) ([]*manifest.Document, *manifest.SyntaxError) {
	file, _ := s.Release.Components()
	documents, err := manifest.Parse(file.Name, file.Data)
	if err != nil {
		// A variable's value may be what makes the file YAML: clusterctl reads it after substitution.
		if rendered, ok := templates.WithDefaults(file.Data); ok {
			if substituted, again := manifest.Parse(file.Name, rendered); again == nil {
				documents, err = substituted, nil
			}
		}
	}
	var syntax *manifest.SyntaxError
	errors.As(err, &syntax)
	return documents, syntax
})

// Objects returns the objects of the components YAML of the given kinds, or all of them. The list is empty if the file
// can't be read completely, because an object that another one names may be in the unread part. components-parse
// reports that.
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

// Object returns the object with a kind and name. It needs no namespace, because clusterctl puts all objects into one.
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
	return readMetadata(context.Background(), s)
}

var readMetadata = OnceValues(func(_ context.Context, s *Subject) (*metadata.File, error) {
	file, ok := s.Release.File(release.MetadataFile)
	if !ok {
		return nil, nil
	}
	return metadata.Parse(file.Name, file.Data)
})

// CRD is a custom resource definition of the components.
type CRD = contract.CRD

// CRDs returns the CRDs of the components. It skips a CRD that does not fit its Go type; the API server would refuse
// it, and crd-valid reports it.
func (s *Subject) CRDs() []CRD {
	return readCRDs(s)
}

var readCRDs = OnceValue(func(s *Subject) []CRD { return contract.ReadCRDs(s.Objects("CustomResourceDefinition")) })

// KnownKinds returns the kinds of this release, of those that it is checked with, and of the core. It skips unreadable
// parts of other releases, which their own checks report.
func (s *Subject) KnownKinds() *schemas.Kinds {
	return readKinds(s)
}

var readKinds = OnceValue(func(s *Subject) *schemas.Kinds { return schemas.Of(s.KnownCRDs()...) })

// KnownCRDs returns the CRDs of the release and of those that it is checked with.
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
