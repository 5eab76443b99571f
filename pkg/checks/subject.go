package checks

import (
	"context"
	"errors"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/clusterctl-release/clusterctl-release/pkg/components"
	"github.com/clusterctl-release/clusterctl-release/pkg/contract"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/metadata"
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

	// ctx is that of the Run.
	ctx context.Context

	onceComponents      once[parsed]
	onceMetadata        once[parsedMetadata]
	onceTemplates       once[renderedFiles]
	onceSamples         once[*templates.Known]
	onceCRDs            once[[]CRD]
	onceImplementations once[[]*contract.Implementation]
	onceKinds           once[*schemas.Kinds]
	onceRisks           once[[]templateRisk]
	oncePods            once[[]*pod]
	onceVariables       once[[]variableUse]
	onceDefaults        once[variableDefaults]
	onceRefusal         once[error]
	onceScopes          once[components.Scopes]
	onceUpgrade         once[*upgrade]

	// graphs are those that WantsGraphs asks for, once the risks are known.
	graphs []TemplateGraph
}

// once is a value that is worked out when it is first asked for.
type once[T any] struct {
	sync.Once
	value T
}

// get returns the value, and works it out if nobody has.
func (o *once[T]) get(work func() T) T {
	o.Do(func() { o.value = work() })
	return o.value
}

// parsed are the objects of a file, with the error at which reading ended.
type parsed struct {
	documents []*manifest.Document
	err       *manifest.SyntaxError
}

// parsedMetadata is metadata.yaml, or why it can't be read.
type parsedMetadata struct {
	file *metadata.File
	err  error
}

// Source is a source tree with its release file.
type Source struct {
	Tree   *tree.Tree
	Config *release.Config
}

// Context returns the context of the Run. What takes long ends when it ends: Run then returns no findings.
func (s *Subject) Context() context.Context {
	if s.ctx == nil {
		return context.Background()
	}
	return s.ctx
}

// Components returns the objects of the components YAML; what was read before a syntax error is
// among them. The error is nil where the release has no components at all.
func (s *Subject) Components() ([]*manifest.Document, *manifest.SyntaxError) {
	p := s.onceComponents.get(func() parsed {
		file, ok := s.Release.Components()
		if !ok {
			return parsed{}
		}
		documents, err := manifest.Parse(file.Name, file.Data)
		if err != nil {
			// What a variable stands for may be what makes it YAML: clusterctl reads it substituted.
			if rendered, ok := withDefaults(file.Data); ok {
				if substituted, again := manifest.Parse(file.Name, rendered); again == nil {
					documents, err = substituted, nil
				}
			}
		}
		var syntax *manifest.SyntaxError
		errors.As(err, &syntax)
		return parsed{documents, syntax}
	})
	return p.documents, p.err
}

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
		for _, kind := range kinds {
			if d.Object.GetKind() == kind {
				chosen = append(chosen, d)
			}
		}
	}
	return chosen
}

// Metadata returns metadata.yaml; the file is nil where the release has none, or with an error
// where it can't be read.
func (s *Subject) Metadata() (*metadata.File, error) {
	m := s.onceMetadata.get(func() (m parsedMetadata) {
		if file, ok := s.Release.File(release.MetadataFile); ok {
			m.file, m.err = metadata.Parse(file.Name, file.Data)
		}
		return m
	})
	return m.file, m.err
}

// CRD is a custom resource definition of the components.
type CRD = contract.CRD

// CRDs returns the custom resource definitions of the components. One that does not fit its own
// Go type is left out; the API server would refuse it, and crd-valid says so.
func (s *Subject) CRDs() []CRD {
	return s.onceCRDs.get(func() []CRD { return contract.ReadCRDs(s.Objects("CustomResourceDefinition")) })
}

// knownKinds returns the kinds of this release, of those it is checked with, and of the core. What
// can't be read of another release is left out: it is that release's own to be checked.
func (s *Subject) knownKinds() *schemas.Kinds {
	return s.onceKinds.get(func() *schemas.Kinds { return schemas.Of(s.knownCRDs()...) })
}

// knownCRDs returns the CRDs of the release and of those it is checked with.
func (s *Subject) knownCRDs() []*apiextensionsv1.CustomResourceDefinition {
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
