// Package rendered renders the cluster templates and ClusterClass definitions of a release for checks, with
// clusterctl's code.
package rendered

import (
	"context"
	"slices"

	"github.com/clusterctl-release/clusterctl-release/pkg/checks"
	"github.com/clusterctl-release/clusterctl-release/pkg/release"
)

// files are the rendered cluster templates and ClusterClass definitions of a release. Definitions with a wrong name are
// among the classes.
type files struct{ templates, classes []*Template }

// filesOf renders the files of a release, until the context ends.
var filesOf = checks.OnceValues(func(ctx context.Context, s *checks.Subject) (all files, err error) {
	for _, f := range s.Release.Files {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		switch {
		case release.IsClusterTemplate(f.Name):
			all.templates = append(all.templates, render(ctx, s, f))
		case release.IsClusterClass(f.Name), s.Release.IsMisnamedClass(f):
			all.classes = append(all.classes, render(ctx, s, f))
		}
	}
	return all, ctx.Err()
})

// selection selects files that a check looks at.
type selection func(files) []*Template

// Templates are the cluster templates.
var Templates selection = func(f files) []*Template { return f.templates }

// Classes are the ClusterClass definitions.
var Classes selection = func(f files) []*Template { return f.classes }

// All are the cluster templates and the ClusterClass definitions.
var All selection = func(f files) []*Template { return slices.Concat(f.templates, f.classes) }

// Of returns the selected files of a release.
func (n selection) Of(ctx context.Context, s *checks.Subject) ([]*Template, error) {
	all, err := filesOf(ctx, s)
	return n(all), err
}

// Each returns a RunFunc that calls look for one file after the other.
func (n selection) Each(look func(ctx context.Context, s *checks.Subject, t *Template, report checks.Report) error) checks.RunFunc {
	return func(ctx context.Context, s *checks.Subject, report checks.Report) error {
		all, err := n.Of(ctx, s)
		if err != nil {
			return err
		}
		for _, t := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := look(ctx, s, t, report); err != nil {
				return err
			}
		}
		return nil
	}
}

// EachObject returns a RunFunc that calls look for one object after the other.
func (n selection) EachObject(look func(ctx context.Context, s *checks.Subject, t *Template, o Object, report checks.Report) error) checks.RunFunc {
	return n.Each(func(ctx context.Context, s *checks.Subject, t *Template, report checks.Report) error {
		for _, o := range t.Objects {
			if err := look(ctx, s, t, o, report); err != nil {
				return err
			}
		}
		return nil
	})
}
