package checks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// template is a cluster template or a ClusterClass definition of the release.
type template struct {
	release.File
	// objects are what clusterctl makes of the file with the first set of values, the namespace
	// aside; none where it refuses the file with every set.
	objects []object
	// failures are what clusterctl says where it refuses the file, set by set.
	failures []failure
	// variables are those of the file, none where clusterctl can't read them.
	variables []templates.Variable
	values    map[string]string
	// strict is why a stricter reader than clusterctl refuses the file once it is rendered, or nil.
	strict *manifest.SyntaxError
	// blocks are the places where more than a single value is missing, as nobody gave the variable.
	blocks []templates.Block
	// guessed are variables that a user must set and that have made-up values in objects. common are
	// those that clusterctl sets, as far as nobody gave them: their values are likely ones.
	guessed, common map[string]bool
	// objectNames are the names of objects, read when the first reference is looked up.
	objectNames *nameIndex
}

// object is an object of a rendered template with its place in the file as it is published.
type object struct {
	unstructured.Unstructured
	file string
	// raw is the document before variables were replaced, or nil where it isn't YAML then.
	raw *manifest.Document
	// index counts the file's objects from 1.
	index int
	// validate holds the object against the schema of its kind, once.
	validate func() ([]schemas.Problem, error)
}

// place returns where a field of the object is in the published file.
func (o object) place(path ...any) manifest.Place {
	place := manifest.Place{
		File: o.file, Document: o.index, Path: manifest.FieldPath(path...), Object: manifest.ObjectOf(o.Unstructured),
	}
	if o.raw != nil {
		raw := o.raw.Place(path...)
		place.Document, place.Line, place.Column = raw.Document, raw.Line, raw.Column
	}
	return place
}

// failure is what clusterctl says of a file with one set of values.
type failure struct {
	// set is the name of the set of values, or "" for guessed ones.
	set string
	err error
}

// templates returns the cluster templates of the release, rendered.
func (s *Subject) templates() []*template {
	return s.renderedFiles().templates
}

// clusterClasses returns the ClusterClass definitions of the release, misnamed ones among them.
func (s *Subject) clusterClasses() []*template {
	return s.renderedFiles().classes
}

// renderedFiles are the cluster templates and ClusterClass definitions of a release.
type renderedFiles struct{ templates, classes []*template }

// renderedFiles renders the files of the release, until the context ends.
func (s *Subject) renderedFiles() renderedFiles {
	return s.onceTemplates.get(func() (all renderedFiles) {
		for _, f := range s.Release.Files {
			switch {
			case s.Context().Err() != nil:
				return all
			case release.IsClusterTemplate(f.Name):
				all.templates = append(all.templates, s.render(f))
			case release.IsClusterClass(f.Name), isMisnamedClass(s.Release, f):
				all.classes = append(all.classes, s.render(f))
			}
		}
		return all
	})
}

// render lets clusterctl's own code make objects of a file, with each set of values that fits it.
func (s *Subject) render(f release.File) *template {
	t := &template{File: f}
	for _, set := range s.valueSets(f.Name) {
		set = nameClass(f, set)
		samples, err := templates.Sample(f, s.knownToSamples(), set.Values)
		if err != nil {
			t.failures = append(t.failures, failure{err: err})
			return t
		}
		t.variables = samples.Variables
		made, err := repository.NewTemplate(repository.TemplateInput{
			RawArtifact: f.Data, ConfigVariablesClient: given(samples.Values), Processor: templates.NewProcessor(),
			TargetNamespace: "", // what clusterctl moves to the user's namespace is to be seen as it was
		})
		if err != nil {
			t.failures = append(t.failures, failure{set: set.Name, err: err})
			continue
		}
		if t.objects == nil {
			t.values, t.blocks = samples.Values, samples.Blocks
			t.guessed, t.common = guessed(samples), map[string]bool{}
			for name := range templates.Guess(nil) {
				_, isGiven := set.Values[name]
				t.common[name] = !isGiven
			}
			t.place(s, samples.Published, made.Objs())
		}
	}
	return t
}

// knownToSamples returns what values are made up to fit.
func (s *Subject) knownToSamples() *templates.Known {
	return s.onceSamples.get(func() *templates.Known {
		known := &templates.Known{Kinds: s.knownKinds()}
		for _, r := range append([]*release.Release{s.Release}, s.With...) {
			for _, f := range r.Files {
				if release.IsClusterClass(f.Name) {
					known.Classes = append(known.Classes, f)
				}
			}
		}
		return known
	})
}

// guessed returns the variables whose values are made up: nobody gave them, or their defaults have others
// of which that is so.
func guessed(samples *templates.Samples) map[string]bool {
	names := map[string]bool{}
	for _, name := range samples.MadeUp {
		names[name] = true
	}
	for _, v := range samples.Variables {
		if _, isSet := samples.Values[v.Name]; v.Default != nil && !isSet &&
			slices.ContainsFunc(variablesIn(*v.Default), func(name string) bool { return names[name] }) {
			names[v.Name] = true
		}
	}
	return names
}

// valueSets returns the release file's sets of values for a file, or one set without any.
func (s *Subject) valueSets(file string) []release.SampleValues {
	var sets []release.SampleValues
	if s.Config != nil {
		for _, set := range s.Config.SampleValues {
			if len(set.Files) == 0 || slices.Contains(set.Files, file) {
				sets = append(sets, set)
			}
		}
	}
	if len(sets) == 0 {
		sets = append(sets, release.SampleValues{})
	}
	return sets
}

// place joins rendered objects with the documents of the published file they come from. Where that is
// no YAML, or none for a reader that is stricter than clusterctl, the rendered file is read as well.
func (t *template) place(s *Subject, published *templates.Published, made []unstructured.Unstructured) {
	var documents []*manifest.Document
	if published != nil {
		documents = published.Documents
	} else if rendered, err := templates.NewProcessor().Process(t.Data, given(t.values).Get); err == nil && bytes.IndexByte(t.Data, 0) < 0 {
		// clusterctl takes a NUL for the file's end, so that what it renders has none.
		_, err = manifest.Parse(t.Name, rendered)
		errors.As(err, &t.strict)
	} else {
		_, err = manifest.Parse(t.Name, t.Data)
		errors.As(err, &t.strict)
	}
	if len(documents) != len(made) {
		documents = nil
	}
	t.objects = make([]object, 0, len(made))
	for i, o := range made {
		placed := object{Unstructured: o, file: t.Name, index: i + 1, validate: sync.OnceValues(func() ([]schemas.Problem, error) {
			return s.knownKinds().Validate(s.Context(), &o)
		})}
		if documents != nil {
			placed.raw = documents[i]
		}
		t.objects = append(t.objects, placed)
	}
}

// mayHaveMore says whether variables without values may stand for more objects.
func (t *template) mayHaveMore() bool {
	return slices.ContainsFunc(t.blocks, func(b templates.Block) bool { return b.Objects || b.Document == nil })
}

// mayNameMore says whether variables without values may stand for fields that name objects.
func (t *template) mayNameMore() bool {
	return slices.ContainsFunc(t.blocks, func(b templates.Block) bool {
		return b.Objects || len(b.Path) == 0 || b.Path[0] != "metadata"
	})
}

// given are values as clusterctl's configuration has them.
type given map[string]string

// Get implements clusterctl's VariablesClient.
func (g given) Get(name string) (string, error) {
	if value, ok := g[name]; ok {
		return value, nil
	}
	return "", fmt.Errorf("value for variable %q is not set", name)
}

// Set implements clusterctl's VariablesClient.
func (g given) Set(name, value string) { g[name] = value }

// cause returns the innermost error: clusterctl puts whole documents into the words around it.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		}
		err = inner
	}
}

// className returns the class of a Cluster with a managed topology, and the path that names it.
func className(o unstructured.Unstructured) (name string, path []any, ok bool) {
	if o.GroupVersionKind().GroupKind() != clusterv1.GroupVersion.WithKind("Cluster").GroupKind() {
		return "", nil, false
	}
	topology, found, err := unstructured.NestedMap(o.Object, "spec", "topology")
	if err != nil || !found {
		return "", nil, false
	}
	if o.GroupVersionKind().Version == clusterv1.GroupVersion.Version {
		name, _, _ = unstructured.NestedString(topology, "classRef", "name")
		return name, []any{"spec", "topology", "classRef", "name"}, true
	}
	name, _, _ = unstructured.NestedString(topology, "class")
	return name, []any{"spec", "topology", "class"}, true
}
