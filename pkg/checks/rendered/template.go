package rendered

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/manifest"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
	"github.com/clusterctl-release/clusterctl-release/pkg/schemas"
	"github.com/clusterctl-release/clusterctl-release/pkg/templates"
)

// Template is a cluster template or a ClusterClass definition of the release.
type Template struct {
	release.File
	// Objects are the objects that clusterctl renders from the file with the first set of values, with their original
	// namespaces; empty if it refuses the file with every set.
	Objects []Object
	// Failures are clusterctl's refusals of the file, set by set.
	Failures []Failure
	// Variables are those of the file; empty if clusterctl can't read them.
	Variables []templates.Variable
	Values    map[string]string
	// Strict is the reason of a stricter reader than clusterctl to refuse the rendered file, or nil.
	Strict *manifest.SyntaxError
	// Blocks are the places where more than a single value is missing, because the variable has no value.
	Blocks []templates.Block
	// Guessed are variables that a user must set and that have generated values in objects. common are those that
	// clusterctl sets and that have no given value: their generated values are realistic.
	Guessed, common map[string]bool
	// objectNames are the names of objects, read when the first reference is looked up.
	objectNames *nameIndex
}

// Object is an object of a rendered template with its place in the file as it is published.
type Object struct {
	unstructured.Unstructured
	file string
	// Raw is the document before variables were replaced, or nil if it isn't YAML then.
	Raw *manifest.Document
	// Index counts the file's objects from 1.
	Index int
	// validate validates the object against the schema of its kind, once.
	validate func() ([]schemas.Problem, error)
}

// Place returns the place of a field of the object in the published file.
func (o Object) Place(path ...any) manifest.Place {
	place := manifest.Place{
		File: o.file, Document: o.Index, Path: manifest.FieldPath(path...), Object: manifest.ObjectOf(o.Unstructured),
	}
	if o.Raw != nil {
		raw := o.Raw.Place(path...)
		place.Document, place.Line, place.Column = raw.Document, raw.Line, raw.Column
	}
	return place
}

// Failure is clusterctl's refusal of a file with one set of values.
type Failure struct {
	// Set is the name of the set of values, or "" for generated ones.
	Set string
	Err error
}

// render renders the objects of a file with clusterctl's code, with each set of values that fits it.
func render(ctx context.Context, s *checks.Subject, f release.File) *Template {
	t := &Template{File: f}
	for _, set := range valueSets(s, f.Name) {
		set = nameClass(f, set)
		samples, err := templates.Sample(f, knownToSamples(s), set.Values)
		if err != nil {
			t.Failures = append(t.Failures, Failure{Err: err})
			return t
		}
		t.Variables = samples.Variables
		made, err := repository.NewTemplate(repository.TemplateInput{
			RawArtifact: f.Data, ConfigVariablesClient: given(samples.Values), Processor: templates.NewProcessor(),
			TargetNamespace: "", // keeps the original namespaces
		})
		if err != nil {
			t.Failures = append(t.Failures, Failure{Set: set.Name, Err: err})
			continue
		}
		if t.Objects == nil {
			t.Values, t.Blocks = samples.Values, samples.Blocks
			t.Guessed, t.common = guessed(samples), map[string]bool{}
			for name := range templates.Guess(nil) {
				_, isGiven := set.Values[name]
				t.common[name] = !isGiven
			}
			t.place(ctx, s, samples.Published, made.Objs())
		}
	}
	return t
}

// knownToSamples are the schemas that generated values fit.
var knownToSamples = checks.OnceValue(func(s *checks.Subject) *templates.Known {
	known := &templates.Known{Kinds: s.KnownKinds()}
	for _, r := range append([]*release.Release{s.Release}, s.With...) {
		for _, f := range r.Files {
			if release.IsClusterClass(f.Name) {
				known.Classes = append(known.Classes, f)
			}
		}
	}
	return known
})

// guessed returns the variables with generated values: those without a given value, or whose default contains such a
// variable.
func guessed(samples *templates.Samples) map[string]bool {
	names := map[string]bool{}
	for _, name := range samples.Generated {
		names[name] = true
	}
	for _, v := range samples.Variables {
		if _, isSet := samples.Values[v.Name]; v.Default != nil && !isSet &&
			slices.ContainsFunc(VariablesIn(*v.Default), func(name string) bool { return names[name] }) {
			names[v.Name] = true
		}
	}
	return names
}

// valueSets returns the release file's sets of values for a file, or one set without any.
func valueSets(s *checks.Subject, file string) []release.SampleValues {
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

// place joins rendered objects with the documents of the published file they come from. If the published file is not
// YAML, or not for a reader that is stricter than clusterctl, it also reads the rendered file.
func (t *Template) place(ctx context.Context, s *checks.Subject, published *templates.Published, made []unstructured.Unstructured) {
	var documents []*manifest.Document
	if published != nil {
		documents = published.Documents
	} else if rendered, err := templates.NewProcessor().Process(t.Data, given(t.Values).Get); err == nil && bytes.IndexByte(t.Data, 0) < 0 {
		// clusterctl treats a NUL as the end of the file, so the rendered file has none.
		_, err = manifest.Parse(t.Name, rendered)
		errors.As(err, &t.Strict)
	} else {
		_, err = manifest.Parse(t.Name, t.Data)
		errors.As(err, &t.Strict)
	}
	if len(documents) != len(made) {
		documents = nil
	}
	t.Objects = make([]Object, 0, len(made))
	for i, o := range made {
		placed := Object{Unstructured: o, file: t.Name, Index: i + 1, validate: sync.OnceValues(func() ([]schemas.Problem, error) {
			return s.KnownKinds().Validate(ctx, &o)
		})}
		if documents != nil {
			placed.Raw = documents[i]
		}
		t.Objects = append(t.Objects, placed)
	}
}

// MayHaveMore reports whether variables without values may stand for more objects.
func (t *Template) MayHaveMore() bool {
	return slices.ContainsFunc(t.Blocks, func(b templates.Block) bool { return b.Objects || b.Document == nil })
}

// MayNameMore reports whether variables without values may stand for fields that name objects.
func (t *Template) MayNameMore() bool {
	return slices.ContainsFunc(t.Blocks, func(b templates.Block) bool {
		return b.Objects || len(b.Path) == 0 || b.Path[0] != "metadata"
	})
}

// given are values in the form of clusterctl's configuration.
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

// Cause returns the innermost error: clusterctl adds whole documents to the text around it.
func Cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		}
		err = inner
	}
}
